"""A model of each device's own, pulled to the averaged model by a penalty (Ditto).

Besides federated averaging, each device trains a personal model under a penalty on the distance to
the model that it received in this round. Both models take the same number of steps, on the same
minibatches. With penalty 0 the device trains its personal model alone. That of an absent device
stays unchanged.

References
----------
Li, Hu, Beirami, Smith 2021, "Ditto: Fair and Robust Federated Learning Through Personalization",
    Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment_,
    count_step_flops,
    get_received_params,
    select_prefix,
    take_penalised_step_,
)
from otafl.algorithms.shared_settings import (
    AveragedSettings,
    declare_penalty,
    declare_personal_rate,
    find_overshoot,
)
from otafl.core.contracts import Broadcast, LocalContext, Tensors, Workload


class Ditto(Algorithm):
    r"""Ditto: federated averaging with personal models under a quadratic penalty.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are v, initially
    the server's start.

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    The device descends F_k(v) + lambda/2 |v - w^t|^2, where w^t is the received model:

    .. math::

        v \leftarrow v - \eta \left( \nabla F_k(v) + \lambda (v - w^t) \right)

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["ditto"] = "ditto"
        personal_learning_rate: float = declare_personal_rate()
        penalty: float = declare_penalty(
            1.0, "lambda, weight of the penalty lambda/2 |v - w|^2 on a device's own model v"
        )

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot(
                "personal_learning_rate", self.personal_learning_rate, self.penalty
            )

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        received, work = get_received_params(broadcast, self.model), context.local_data
        w, v = self.model.copy_trainable(received), select_prefix(devices, "personal")
        rate, own_rate = (
            context.gather_hyper("learning_rate"),
            context.gather_hyper("personal_learning_rate"),
        )
        weight = context.gather_hyper("penalty")
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            loss += self.model.take_sgd_step_(w, batch, rate)
            take_penalised_step_(self.model, v, received, batch, own_rate, weight)
        sent = build_increment_(w, broadcast, self.model.shapes)
        return add_prefix("personal", v), sent, loss / work.steps

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the step of w, and that of v with its penalty: v - w, times lambda, added."""
        return count_step_flops(self.model, workload, gradients=2, per_param_step=7.0)
