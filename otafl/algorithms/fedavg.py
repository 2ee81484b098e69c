"""Average the models that devices train by local SGD (federated averaging).

Sent is the increment to the broadcast model, which shrinks as training converges, where the model
itself does not; or, with `sends: model`, the model, a block for each parameter (FedRLR's baseline 4
with codec uniform, which then quantises layer by layer).

References
----------
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import torch

from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome
from otafl.algorithms.parameters import increment_, received_copy, sgd_
from otafl.algorithms.whole_models import IN_THE_CLEAR, payload_of, received_model, step_size
from otafl.core.contracts import MODEL, Broadcast, Context, LocalContext, Received, Tensors
from otafl.core.settings import stackable
from otafl.models.base import flatten, unflatten


class FedAvg(Algorithm):
    """Keeps server block "model" [S, P], all parameters of a trial side by side; no device
    state."""

    averages: ClassVar[bool] = True

    class Settings(DecayedSettings):
        name: Literal["fedavg"] = "fedavg"
        server_learning_rate: float = stackable(1.0, gt=0)
        """factor on the averaged increment"""
        sends: Literal["increment", "model"] = "increment"
        """what devices send: the increment to the broadcast model, all parameters in one block, or
        the model, a block for each parameter"""
        bias_mode: Annotated[Literal["ideal", "ota"], IN_THE_CLEAR] = "ota"
        """with sends: model, biases carried free of error and uncounted, or over the uplink"""

        def find_conflicts(self) -> Iterator[str]:
            if self.bias_mode == "ideal" and self.sends == "increment":
                yield (
                    "bias_mode: ideal needs the biases apart from the weights, and the increment "
                    "is one block; sends: model would do"
                )

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        return bool(settings.sends == "increment")

    @property
    def round_operations(self) -> float:
        return 1.0 if self.settings.sends == "increment" else 0.0

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        params = received_copy(broadcast, self.model)
        rate = step_size(context.hyper, context.round)[context.cohort.trial]
        loss = sgd_(self.model, params, rate, context)
        if self.settings.sends == "model":
            return {}, payload_of(params, self.model, self.settings.bias_mode), loss
        return {}, increment_(params, broadcast, self.model.shapes), loss

    def combine(self, server: Tensors, received: Received, context: Context) -> Tensors:
        if self.settings.sends == "increment":
            return super().combine(server, received, context)
        step = context.hyper["server_learning_rate"][:, None]
        mean = received_model(unflatten(server[MODEL], self.model.shapes), received)
        return {MODEL: torch.lerp(server[MODEL], flatten(mean), step)}
