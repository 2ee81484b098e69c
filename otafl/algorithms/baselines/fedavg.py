"""Averaging of models that devices train by local SGD (FedAvg), also under a penalty (FedProx)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    DecayedSettings,
    Outcome,
    PayloadKind,
    find_overshoot,
)
from otafl.algorithms.baselines.whole_model_methods import build_payload, get_received_model
from otafl.algorithms.parameters import (
    build_increment,
    compute_step_size,
    copy_received_params,
    run_sgd_,
    train_increment,
    train_penalised,
)
from otafl.core import contracts as c
from otafl.core.settings import declare_stackable
from otafl.models.base import flatten, unflatten


class FedAvg(Algorithm):
    r"""Averaging of models that devices train by local SGD (federated averaging, FedAvg).

    Devices send the increment to the broadcast model, which shrinks as training converges. With
    `sends: model` they send the model, one tensor for each parameter. FedRLR's baseline 4 is this
    with codec uniform, which then quantises layer by layer.

    The server's tensor "model" [S, P] holds all parameters of a trial side by side. Devices have no
    state.

    Notes
    -----
    With the model w_k of device k after local SGD, its aggregation weight p_k and the server's
    learning rate beta:

    .. math::

        w \leftarrow w + \beta \sum_k p_k (w_k - w)

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks
        from Decentralized Data", Algorithm 1.

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

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        adds = cls.payload.is_increment and settings.sends == "increment"
        return cls.payload._replace(is_increment=adds)

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
        return {}, build_payload(params, self.model, "ota"), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        if self.settings.sends == "increment":
            return super().update_server(server, received, context)
        step = context.hyper["server_learning_rate"][:, None]
        mean = get_received_model(unflatten(server[c.MODEL], self.model.shapes), received)
        return {c.MODEL: torch.lerp(server[c.MODEL], flatten(mean), step)}


class FedProx(Algorithm):
    r"""Averaging of models trained under a penalty on the distance to the broadcast one (FedProx).

    The penalty limits how far models of different devices drift apart. With penalty 0 it is
    federated averaging.

    The server's tensor "model" [S, P] is w. Devices have no state.

    Notes
    -----
    A device descends, by SGD from the broadcast model w^t,

    .. math::

        h_k(w; w^t) = F_k(w) + \frac{\mu}{2} \|w - w^t\|^2 \quad (2)

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in Heterogeneous
        Networks", Algorithm 2.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with personalised methods.
    """

    averages_increments: ClassVar[bool] = True
    only_reads_broadcast: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["fedprox"] = "fedprox"
        penalty: float = declare_stackable(0.1, ge=0)
        """mu, weight of the penalty mu/2 |w - w^t|^2 on the distance to the broadcast model"""

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot("learning_rate", self.learning_rate, self.penalty, "penalty")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the penalty's w - w^t, times mu, added to the gradient, and the step."""
        return self.count_step_flops(workload, per_param_step=5.0)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate, mu = context.gather_hyper("learning_rate"), context.gather_hyper("penalty")
        params, loss = train_penalised(self.model, broadcast, rate, mu, context)  # eq. (2)
        return {}, build_increment(params, broadcast, self.model.shapes), loss
