"""Asynchronous averaging: one model at a time (FedAsync), and with a buffer (FedBuff).

For asynchronous uplinks, whose server steps before all devices are ready. The staleness of an
update is the number of server steps since the device received its model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, find_overshoot
from otafl.algorithms.deliveries import get_delivered_indicator, replace_delivered, sum_per_trial
from otafl.algorithms.parameters import (
    build_increment,
    build_model_payload,
    train_increment,
    train_penalised,
)
from otafl.core import contracts as c
from otafl.core import registry, settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable


class FedAsync(Algorithm):
    r"""Asynchronous averaging, in which a model counts less the staler it is (FedAsync).

    For asynchronous uplinks. The staleness of an update is the number of server steps since the
    device received its model. The server mixes every delivered model into its own at once. Several
    devices of one slot give the weighted mean of the models that the server would have with each
    device alone. A device whose silence the receiver does not report counts in this mean.

    With `sends: increment` the server adds the increment instead. Steps of the server since the
    broadcast then remain, and the noise of an analogue uplink is in proportion to the increment.

    The server's tensor "model" [S, P] is x. Devices have no state.

    Notes
    -----
    A device that received x_tau descends f(x) + rho/2 |x - x_tau|^2 by SGD to x_new. At step t the
    server computes

    .. math::

        x \leftarrow (1 - a) x + a x_{new}, \quad a = \alpha s(t - \tau)

    with s(d) = (1 + d)^-exponent of the staleness t - tau, which is 0 for an update of the current
    model. For several devices of data shares w_k in one slot, x_new is their mean under the weights
    w_k s_k, and a is the mean of alpha s_k under w_k. An over-the-air sum computes this mean by
    itself. With `sends: increment`

    .. math::

        x \leftarrow x + a (x_{new} - x_\tau).

    References
    ----------
    Xie, Koyejo, Gupta 2020, "Asynchronous Federated Optimization", Algorithm 1.

    Examples
    --------
    `studies/time_and_energy/deadline_stragglers.yaml` runs it beside synchronous methods.
    """

    averages_increments: ClassVar[bool] = True

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"devices.protocol.name": "asynchronous"}

        name: Literal["fedasync"] = "fedasync"
        learning_rate: float = declare_stackable(0.1, gt=0)
        """gamma, step size of local SGD"""
        mixing: float = declare_stackable(0.6, gt=0, le=1)
        """alpha, share of an update without staleness in the server's new model"""
        exponent: float = declare_stackable(0.5, ge=0)
        """a of s(d) = (1 + d)^-a, the factor of alpha at a staleness of d server steps; 0.5 in the
        paper's experiments, 0 for a constant"""
        rho: float = declare_stackable(0.005, ge=0)
        """weight of the penalty rho/2 |x - x_tau|^2 on the distance to the received model"""
        sends: Literal["model", "increment"] = "model"
        """what devices send: the model, as in the paper, so that x becomes (1 - a) x + a x_new; or
        the increment, so that x becomes x + a (x_new - x_tau), which is much smaller and gets
        less noise from an analogue uplink"""

        def list_notes(self, scenario: Any) -> Iterable[str]:
            name = scenario.transport.name
            shared = registry.load_component("transport", name).counts == "shared"
            if self.sends == "model" and shared:
                yield (
                    f"algorithm.sends: 'model' over transport '{name}' gives the server noise in "
                    "proportion to the model instead of its change; use sends: increment"
                )

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot("learning_rate", self.learning_rate, self.rho, "rho")

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        adds = cls.payload.is_increment and settings.sends == "increment"
        return cls.payload._replace(is_increment=adds)

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the penalty's x - x_tau, times rho, added to the gradient, and the step."""
        subtractions = 1.0 if self.settings.sends == "increment" else 0.0
        return self.count_step_flops(workload, per_param_step=5.0, per_param_round=subtractions)

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return w_k s_k [N], for a cohort with the data shares w_k."""
        return context.cohort.weight * _compute_staleness_weight(context)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate, rho = context.gather_hyper("learning_rate"), context.gather_hyper("rho")
        params, loss = train_penalised(self.model, broadcast, rate, rho, context)
        if self.settings.sends == "model":
            return {}, build_model_payload(params), loss
        return {}, build_increment(params, broadcast, self.model.shapes), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort = context.cohort
        delivered = get_delivered_indicator(received, cohort)
        weight = sum_per_trial(delivered * cohort.weight, cohort)
        received_share = delivered * cohort.weight / _compute_staleness_weight(context)
        share = sum_per_trial(received_share, cohort)
        a = context.hyper["mixing"] * weight / share.clamp_min(torch.finfo(share.dtype).tiny)
        if self.settings.sends == "increment":
            return {c.MODEL: torch.addcmul(server[c.MODEL], a[:, None], received.mean[0][c.MODEL])}
        mean = replace_delivered(server, received, 0)[c.MODEL]
        return {c.MODEL: torch.lerp(server[c.MODEL], mean, a[:, None])}


class FedBuff(Algorithm):
    r"""Asynchronous averaging with a buffer, which the server applies once it is full (FedBuff).

    For asynchronous uplinks. A device trains by SGD and sends the increment to the model that it
    received. The server adds it to a buffer with a weight that decreases with its staleness. After
    M increments the server steps along their mean and empties the buffer.

    A slot can bring several devices, as with over-the-air computation. Then the uplink's weighted
    mean is scaled back to a sum. A slot with more increments than are missing makes one step of the
    mean over all increments. So the step does not grow with their number. An uplink that separates
    devices gives their exact number. Otherwise it is the delivered weight times the number in the
    slot, rounded, which is exact for equal staleness.

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

    References
    ----------
    Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
        Asynchronous Aggregation", Algorithm 1.

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
        return _compute_staleness_weight(context)

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
        # sum of s of the delivered updates
        total = weight * sum_per_trial(cohort.weight, cohort)[:, None]
        buffer = torch.addcmul(server["buffer"], received.mean[0][c.MODEL], total)
        count = weight.amax(1) * cohort.rows_per_trial
        if received.delivered_mask is not None:
            count = sum_per_trial(get_delivered_indicator(received, cohort), cohort)
        num_updates = server["came"] + count.round().long()
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


def _compute_staleness_weight(context: c.Context) -> Tensor:
    """Compute s(d) = (1 + d)^-exponent of the staleness d of each row, [N]."""
    late = context.cohort.staleness.to(context.cohort.weight.dtype)
    return (1.0 + late).pow(-context.gather_hyper("exponent"))
