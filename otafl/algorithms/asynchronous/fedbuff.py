"""Asynchronous averaging with a buffer, which the server applies once it is full (FedBuff).

For asynchronous uplinks. A device trains by SGD and sends the increment to the model that it
received. The server adds it to a buffer with a weight that decreases with its staleness. After M
increments the server steps along their mean and empties the buffer.

A slot can bring several devices, as with over-the-air computation. Then the uplink's weighted mean
is scaled back to a sum. A slot with more increments than are missing makes one step of the mean
over all increments. So the step does not grow with their number. An uplink that separates devices
gives their exact number. Otherwise it is the delivered weight times the number in the slot,
rounded, which is exact for equal staleness.

References
----------
Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
    Asynchronous Aggregation", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.deliveries import get_delivered_indicator, sum_per_trial
from otafl.algorithms.parameters import train_increment
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable


class FedBuff(Algorithm):
    r"""Buffered asynchronous aggregation.

    The server's tensors are "model", "buffer" and "velocity" [S, P]. "came" [S] int64 is the number
    of increments in the buffer, and "version" [S] int64 the number of server steps. Devices have no
    state.

    Notes
    -----
    The weight of an increment Delta of staleness d is s(d) = (1 + d)^-exponent. A full buffer gives
    the step

    .. math::

        v \leftarrow \beta v + \frac{1}{M} \sum s(d) \Delta, \quad x \leftarrow x + \eta_g v

    with momentum beta, 0 in the paper.

    Examples
    --------
    `studies/time_and_energy/deadline_stragglers.yaml` runs it beside synchronous methods.
    """

    only_reads_broadcast: ClassVar[bool] = True

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"devices.protocol.name": "quorum"}
        small: ClassVar[Mapping[str, Any]] = {"buffer": 2}

        name: Literal["fedbuff"] = "fedbuff"
        learning_rate: float = declare_stackable(0.1, gt=0)
        """eta_l, step size of local SGD"""
        server_rate: float = declare_stackable(1.0, gt=0)
        """eta_g, factor of the buffer's mean"""
        buffer: int = declare_stackable(10, ge=1)
        """M, number of updates after which the server steps (the paper's K)"""
        exponent: float = declare_stackable(0.5, ge=0)
        """exponent of the weight (1 + d)^-exponent of an update of staleness d; 0.5 in the paper, 0
        for equal weights"""
        momentum: float = declare_stackable(0.0, ge=0, lt=1)
        """share of the server's last step in its next one"""

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        model = server[c.MODEL]
        zeros = {name: torch.zeros_like(model) for name in ("buffer", "velocity")}
        none = torch.zeros(len(model), dtype=torch.int64, device=model.device)
        return server | zeros | {"came": none, c.VERSION: none.clone()}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return c.Broadcast({c.MODEL: server[c.MODEL]})

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return s(d) of each row, [N], without a weight for the number of samples."""
        late = context.cohort.staleness.to(context.cohort.weight.dtype)
        return (1.0 + late).pow(-context.gather_hyper("exponent"))

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate = context.gather_hyper("learning_rate")
        return {}, *train_increment(self.model, broadcast, rate, context)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort, hyper = context.cohort, context.hyper
        weight = received.delivered_weight(0, c.MODEL)
        total = (
            weight * sum_per_trial(cohort.weight, cohort)[:, None]
        )  # sum of s of the delivered updates
        buffer = torch.addcmul(server["buffer"], received.mean[0][c.MODEL], total)
        num_updates = server["came"] + _count_delivered(received, cohort, weight.amax(1))
        full = num_updates >= hyper["buffer"]
        steps = full[:, None]
        mean = buffer / num_updates.clamp_min(1)[:, None]
        ahead = torch.addcmul(mean, hyper["momentum"][:, None], server["velocity"])
        velocity = torch.where(steps, ahead, server["velocity"])
        moved = torch.addcmul(server[c.MODEL], hyper["server_rate"][:, None], velocity)
        return {
            c.MODEL: torch.where(steps, moved, server[c.MODEL]),
            "buffer": torch.where(steps, 0.0, buffer),
            "velocity": velocity,
            "came": torch.where(full, 0, num_updates),
            c.VERSION: server[c.VERSION] + full,
        }


def _count_delivered(received: c.Received, cohort: c.Cohort, weight: Tensor) -> Tensor:
    """Count the delivered updates, [S] int64, from the delivered weight [S] relative to 1."""
    if received.delivered_mask is not None:
        return sum_per_trial(get_delivered_indicator(received, cohort), cohort).round().long()
    return (weight * cohort.rows_per_trial).round().long()
