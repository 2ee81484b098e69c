"""Train a model of each device's own beside the averaged one, and draw it to that one (Ditto).

Beside federated averaging of w, each device keeps a model v and lowers
h_k(v; w^t) = F_k(v) + lambda/2 |v - w^t|^2 by SGD, w^t being what it received in this round:

    v <- v - eta (grad F_k(v) + lambda (v - w^t))

Both models take as many steps, on the same minibatches. With lambda = 0 v is trained by the device
alone. The personal model is v after local training; that of an absent device stays as it is.

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

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    Outcome,
    declare_penalty,
    declare_personal_rate,
    find_overshoot,
)
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment_,
    get_received_params,
    select_prefix,
    take_penalised_step_,
)
from otafl.core.contracts import Broadcast, LocalContext, Tensors, Workload


class Ditto(Algorithm):
    """Keeps server block "model" [S, P], which is w, and device blocks "personal.<name>": v, the
    server's start at first."""

    private_state: ClassVar[str] = (
        "the personal model: it is trained for the device, from what it received"
    )

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    flops_per_param_step = 7.0
    """The step of w, and that of v with its penalty: v - w, times lambda, added."""

    class Settings(AveragedSettings):
        name: Literal["ditto"] = "ditto"
        personal_learning_rate: float = declare_personal_rate()
        penalty: float = declare_penalty(
            1.0, "lambda: the loss of the device's own model v has lambda/2 |v - w|^2 added"
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
        return super().count_flops(workload) + workload.num_steps * self.model.count_training_flops(
            workload.effective_batch_size
        )
