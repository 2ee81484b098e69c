"""Averaging of updates that are normalised by each device's local steps (FedNova).

With local work in epochs, devices with many samples take more steps, so the plain mean of their
increments is biased towards their own minima. Here a device divides its increment by its number of
local steps. The server multiplies the mean by the mean number of steps. Both agree with federated
averaging if all devices take as many steps.

The numbers of steps cost no channel use. They follow from batch size and epochs, which the server
sets, and from the numbers of samples, which it knows from the aggregation weights. The server takes
their mean over the devices of the slot, without those whose packets it knows to be lost.

References
----------
Wang, Liu, Liang, Joshi, Poor 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous
    Federated Optimization", equation (6), for local SGD without momentum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.deliveries import get_delivered_indicator, sum_per_trial
from otafl.algorithms.parameters import train_increment
from otafl.core import contracts as c
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import VOTES


class FedNova(Algorithm):
    r"""Federated normalised averaging.

    The server's tensor "model" [S, P] is x. Devices have no state.

    Notes
    -----
    Device i takes tau_i steps of SGD from x to x_i. With the weights p_i of the delivered updates
    and the server's learning rate beta:

    .. math::

        x \leftarrow x + \beta \frac{\sum_i p_i \tau_i}{\sum_i p_i} \, \frac{\sum_i p_i (x_i - x) /
        \tau_i}{\sum_i p_i} \quad (6)

    Over the air the noise of the mean is multiplied by the mean number of steps, as the mean is.

    Examples
    --------
    The page on methods shows a scenario with it.
    """

    averages_increments: ClassVar[bool] = True
    only_reads_broadcast: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["fednova"] = "fednova"

        def check(self, scenario: Any) -> Iterator[Problem]:
            """Yield votes, which have no size that a number of steps could scale."""
            for section in (scenario.transport, scenario.codec):
                if section.values.takes_votes:
                    text = f"'{section.name}' {VOTES}, and FedNova scales a mean; use fedavg"
                    yield make_problem(text, "algorithm")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps, the increment and its division."""
        return self.count_step_flops(workload, per_param_round=2.0)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate = context.gather_hyper("learning_rate")
        sent, loss = train_increment(self.model, broadcast, rate, context)
        sent[0].tensors[c.MODEL].div_(context.local_data.steps)
        return {}, sent, loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort = context.cohort
        assert context.count_steps_fn is not None
        weight = cohort.weight * get_delivered_indicator(received, cohort)
        total = sum_per_trial(weight, cohort).clamp_min(1e-30)
        step = context.hyper["server_learning_rate"] / total
        step = step * sum_per_trial(weight * context.count_steps_fn(), cohort)
        return {c.MODEL: torch.addcmul(server[c.MODEL], step[:, None], received.mean[0][c.MODEL])}
