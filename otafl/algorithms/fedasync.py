"""FedAsync.

Xie, Koyejo, Gupta 2020, "Asynchronous Federated Optimization", Algorithm 1: a device that received
x_tau lowers f(x) + rho/2 |x - x_tau|^2 by SGD to x_new, and the server mixes what arrives at its
step t into its model at once,

    x <- (1 - a) x + a x_new,    a = alpha s(t - tau).

Staleness t - tau is 0 of an update of the present model. Of several devices in one slot, of data
shares w_k, it is the mean under w_k of what each alone would have made of x: the devices' models
are averaged under w_k s_k (which an over-the-air sum does by itself), and a is the mean of alpha
s_k under w_k. Devices whose silence the receiver does not report count in that mean.

With `sends: increment` it is x <- x + a (x_new - x_tau) instead: what the server has learned since
tau is not pulled back to x_tau, and an analogue uplink's noise is in proportion to an increment.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_asynchronous import FedAsyncConfig
from otafl.algorithms.parameters import (
    MODEL,
    copied,
    flat_view,
    increment,
    penalised_sgd_,
    received_params,
)
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class FedAsync:
    """Server block "model" [S, P]; no device state."""

    def __init__(self, config: FedAsyncConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self._hyper: Hyper = {}

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        self._hyper = hyper
        return {MODEL: flatten(start(self.model, streams))}, {}

    def row_weights(self, cohort: Cohort) -> Tensor:
        """w_k s_k, of a cohort that has the data shares w_k."""
        return cohort.weight * self._discount(cohort)

    def _discount(self, cohort: Cohort) -> Tensor:
        """s_k [N]."""
        hyper = {name: value[cohort.trial] for name, value in self._hyper.items()}
        late = cohort.staleness.to(cohort.weight.dtype)
        if self.config.staleness == "polynomial":
            return (1.0 + late).pow(-hyper["exponent"])
        if self.config.staleness == "hinge":
            beyond = (late - hyper["hinge_after"]).clamp_min(0.0)
            return 1.0 / (hyper["hinge_slope"] * beyond + 1.0)
        return torch.ones_like(late)

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast(server)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        centre = received_params(broadcast, self.model)
        params = copied(centre)
        rate, rho = (hyper[name][cohort.trial] for name in ("learning_rate", "rho"))
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += penalised_sgd_(self.model, params, centre, work.batch(step), rate, rho)
        if self.config.sends == "increment":
            return {}, increment(params, centre), loss / work.steps
        return {}, (Group({MODEL: flatten(params)}),), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        came = arrived(received, cohort)
        weight = per_trial(came * cohort.weight, cohort)
        share = per_trial(came * cohort.weight / self._discount(cohort), cohort)
        a = hyper["mixing"] * weight / share.clamp_min(torch.finfo(share.dtype).tiny)
        mean = received.mean[0][MODEL]
        if self.config.sends == "increment":
            return {MODEL: torch.addcmul(server[MODEL], a[:, None], mean)}
        return {MODEL: torch.lerp(server[MODEL], mean, a[:, None])}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"global": flat_view(self.model, server[MODEL])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)


def arrived(received: Received, cohort: Cohort) -> Tensor:
    """[N]: 1 for a row that arrived, 0 for one that the receiver knows to be lost."""
    if received.came is None or received.came[0] is None:
        return torch.ones_like(cohort.weight)
    return received.came[0].to(cohort.weight.dtype)


def per_trial(rows: Tensor, cohort: Cohort) -> Tensor:
    """rows [N] summed over each trial, [S]."""
    return rows.new_zeros(cohort.trials).index_add_(0, cohort.trial, rows)
