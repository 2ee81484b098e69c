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
from otafl.algorithms.parameters import build_increment_, copy_received_params, run_sgd_
from otafl.algorithms.whole_models import (
    IDEAL_ROUTE,
    build_payload,
    compute_step_size,
    get_received_model,
)
from otafl.core.contracts import MODEL, Broadcast, Context, LocalContext, Received, Tensors
from otafl.core.settings import declare_stackable
from otafl.models.base import flatten, unflatten


class FedAvg(Algorithm):
    """Keeps server block "model" [S, P], all parameters of a trial side by side; no device
    state."""

    averages_increments: ClassVar[bool] = True

    class Settings(DecayedSettings):
        name: Literal["fedavg"] = "fedavg"
        server_learning_rate: float = declare_stackable(1.0, gt=0)
        """factor on the averaged increment"""
        sends: Literal["increment", "model"] = "increment"
        """what devices send: the increment to the broadcast model, all parameters in one block, or
        the model, a block for each parameter"""
        bias_mode: Annotated[Literal["ideal", "ota"], IDEAL_ROUTE] = "ota"
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
    def flops_per_param_round(self) -> float:
        return 1.0 if self.settings.sends == "increment" else 0.0

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = copy_received_params(broadcast, self.model)
        rate = compute_step_size(context.hyper, context.round)[context.cohort.trial]
        loss = run_sgd_(self.model, params, rate, context)
        if self.settings.sends == "model":
            return {}, build_payload(params, self.model, self.settings.bias_mode), loss
        return {}, build_increment_(params, broadcast, self.model.shapes), loss

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        if self.settings.sends == "increment":
            return super().update_server(server, received, context)
        step = context.hyper["server_learning_rate"][:, None]
        mean = get_received_model(unflatten(server[MODEL], self.model.shapes), received)
        return {MODEL: torch.lerp(server[MODEL], flatten(mean), step)}
