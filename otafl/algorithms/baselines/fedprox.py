"""Averaging of models trained under a penalty on the distance to the broadcast model (FedProx).

The penalty limits how far models of different devices drift apart. With penalty 0 it is federated
averaging.

`stragglers` makes the local work uneven. A straggler completes only a part of the local steps until
the end of the round, and is averaged like the others. It works as long as they do, so its time and
energy are those of all steps.

References
----------
Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in Heterogeneous
    Networks", Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    Outcome,
    declare_penalty,
    find_overshoot,
)
from otafl.algorithms.parameters import (
    build_increment,
    get_received_params,
    take_penalised_step_,
)
from otafl.core.contracts import Broadcast, LocalContext, Tensors, Workload
from otafl.core.rng import declare_purpose

STRAGGLERS = declare_purpose("fedprox/stragglers", __name__)


class FedProx(Algorithm):
    r"""Federated averaging with a proximal term.

    The server's tensor "model" [S, P] is w. Devices have no state.

    Notes
    -----
    A device descends, by SGD from the broadcast model w^t,

    .. math::

        h_k(w; w^t) = F_k(w) + \frac{\mu}{2} \|w - w^t\|^2 \quad (2)

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with personalised methods.
    """

    averages_increments: ClassVar[bool] = True
    only_reads_broadcast: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["fedprox"] = "fedprox"
        penalty: float = declare_penalty(
            0.1, "mu, weight of the penalty mu/2 |w - w^t|^2 on the distance to the broadcast model"
        )
        stragglers: float = Field(0.0, ge=0, le=1)
        """probability that a device completes only a part of a round's local steps, a uniform
        number from 1 to all of them (section 5.2: 0, 0.5, 0.9)"""

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot("learning_rate", self.learning_rate, self.penalty)

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the penalty's w - w^t, times mu, added to the gradient, and the step."""
        return self.count_step_flops(workload, per_param_step=5.0)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        centre, work = get_received_params(broadcast, self.model), context.local_data
        params = self.model.copy_trainable(centre)
        rate, mu = context.gather_hyper("learning_rate"), context.gather_hyper("penalty")
        share = self.settings.stragglers
        count = draw_num_steps(share, context) if share else None
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            if count is None:
                loss += take_penalised_step_(self.model, params, centre, batch, rate, mu)  # eq. (2)
            else:
                on = (step < count).to(rate.dtype)
                loss += on * take_penalised_step_(self.model, params, centre, batch, rate * on, mu)
        taken = work.steps if count is None else count
        return {}, build_increment(params, broadcast, self.model.shapes), loss / taken


def draw_num_steps(share: float, context: LocalContext) -> Tensor:
    """Draw the number of local steps of each row in a round.

    Parameters
    ----------
    share : float
        Probability that a device is a straggler.
    context : LocalContext
        Rows and round.

    Returns
    -------
    Tensor, int64 [n]
        Numbers of steps.
    """
    cohort, steps = context.cohort, context.local_data.steps
    pairs = cohort.trial, cohort.device
    draw, part = context.streams.draw_device_uniform(
        STRAGGLERS, context.round, *pairs, (2,)
    ).unbind(1)
    return torch.where(draw < share, 1 + (part * steps).long(), steps)
