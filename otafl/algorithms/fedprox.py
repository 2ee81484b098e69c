"""Average models trained under a penalty on the distance to the broadcast one (FedProx).

A device lowers h_k(w; w^t) = F_k(w) + mu/2 |w - w^t|^2 (2) by SGD from the broadcast model w^t, so
unlike devices cannot drift far apart. With mu = 0 it is federated averaging.

References
----------
Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in Heterogeneous
    Networks", Algorithm 2.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, must_contract, penalty
from otafl.algorithms.parameters import increment_, penalised_sgd_, received_params
from otafl.core.contracts import Blocks, Broadcast, LocalContext


class FedProx(Algorithm):
    """Keeps server block "model" [S, P]; no device state."""

    averages: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["fedprox"] = "fedprox"
        penalty: float = penalty(0.1, "mu: the local loss has mu/2 |w - w^t|^2 added")

        @model_validator(mode="after")
        def _contracts(self) -> Self:
            must_contract("learning_rate", self.learning_rate, self.penalty)
            return self

    step_operations = 5.0
    """The penalty's w - w^t, times mu, added to the gradient; and the step."""

    def local(self, broadcast: Broadcast, devices: Blocks, context: LocalContext) -> Outcome:
        centre, work = received_params(broadcast, self.model), context.work
        params = self.model.trainable(centre)
        rate, mu = context.of_rows("learning_rate"), context.of_rows("penalty")
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            loss += penalised_sgd_(self.model, params, centre, batch, rate, mu)  # eq. (2)
        return {}, increment_(params, broadcast, self.model.shapes), loss / work.steps
