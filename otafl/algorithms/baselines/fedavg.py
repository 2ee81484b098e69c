"""Averaging of models that devices train by local SGD (federated averaging, FedAvg).

Devices send the increment to the broadcast model, which shrinks as training converges. With `sends:
model` they send the model, one tensor for each parameter. FedRLR's baseline 4 is this with codec
uniform, which then quantises layer by layer.

References
----------
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome, PayloadKind
from otafl.algorithms.parameters import (
    copy_received_params,
    run_sgd_,
    train_increment,
)
from otafl.algorithms.whole_models import (
    IDEAL_ROUTE,
    build_payload,
    compute_step_size,
    get_received_model,
)
from otafl.core import contracts as c
from otafl.core.settings import declare_stackable
from otafl.models.base import flatten, unflatten


class FedAvg(Algorithm):
    r"""Federated averaging.

    The server's tensor "model" [S, P] holds all parameters of a trial side by side. Devices have no
    state.

    Notes
    -----
    With the model w_k of device k after local SGD, its aggregation weight p_k and the server's
    learning rate beta:

    .. math::

        w \leftarrow w + \beta \sum_k p_k (w_k - w)

    Examples
    --------
    `scenarios/quickstart.yaml` runs it over the air.
    """

    averages_increments: ClassVar[bool] = True
    only_reads_broadcast: ClassVar[bool] = True

    class Settings(DecayedSettings):
        name: Literal["fedavg"] = "fedavg"
        server_learning_rate: float = declare_stackable(1.0, gt=0)
        """factor of the averaged increment"""
        sends: Literal["increment", "model"] = "increment"
        """what devices send: the increment to the broadcast model, all parameters in one tensor, or
        the model, one tensor for each parameter"""
        bias_mode: Annotated[Literal["ideal", "ota"], IDEAL_ROUTE] = "ota"
        """route of the biases with sends: model: ideal, free of errors and not counted, or ota,
        over the uplink"""

        def find_conflicts(self) -> Iterator[str]:
            if self.bias_mode == "ideal" and self.sends == "increment":
                yield (
                    "bias_mode: ideal needs biases in tensors of their own, but the increment is "
                    "one tensor; use sends: model or bias_mode: ota"
                )

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind(cls.needs, is_increment=settings.sends == "increment")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        subtractions = 1.0 if self.settings.sends == "increment" else 0.0
        return self.count_step_flops(workload, per_param_round=subtractions)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate = compute_step_size(context.hyper, context.round)[context.cohort.trial]
        if self.settings.sends == "increment":
            return {}, *train_increment(self.model, broadcast, rate, context)
        params = copy_received_params(broadcast, self.model)
        loss = run_sgd_(self.model, params, rate, context)
        return {}, build_payload(params, self.model, self.settings.bias_mode), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        if self.settings.sends == "increment":
            return super().update_server(server, received, context)
        step = context.hyper["server_learning_rate"][:, None]
        mean = get_received_model(unflatten(server[c.MODEL], self.model.shapes), received)
        return {c.MODEL: torch.lerp(server[c.MODEL], flatten(mean), step)}
