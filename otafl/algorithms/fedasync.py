"""Mix in every model that arrives, the less the staler it is (FedAsync).

For asynchronous uplinks: staleness is how many steps the server's model took since the device
received it. A device that received x_tau lowers f(x) + rho/2 |x - x_tau|^2 by SGD to x_new, and the
server mixes what arrives at its step t into its model at once,

    x <- (1 - a) x + a x_new,    a = alpha s(t - tau).

Staleness t - tau is 0 of an update of the present model. Of several devices in one slot, of data
shares w_k, it is the mean under w_k of what each alone would have made of x: the devices' models
are averaged under w_k s_k (which an over-the-air sum does by itself), and a is the mean of alpha
s_k under w_k. Devices whose silence the receiver does not report count in that mean.

With `sends: increment` it is x <- x + a (x_new - x_tau) instead: what the server has learned since
tau is not pulled back to x_tau, and an analogue uplink's noise is in proportion to an increment.

References
----------
Xie, Koyejo, Gupta 2020, "Asynchronous Federated Optimization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.deliveries import get_delivered_indicator, replace_delivered, sum_per_trial
from otafl.algorithms.parameters import (
    build_increment_,
    build_model_payload,
    get_received_params,
    take_penalised_step_,
)
from otafl.core import registry, settings
from otafl.core.contracts import MODEL, Broadcast, Context, LocalContext, Received, Tensors
from otafl.core.settings import declare_stackable


class FedAsync(Algorithm):
    """Keeps server block "model" [S, P]; no device state."""

    averages_increments: ClassVar[bool] = True

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"devices.protocol.name": "asynchronous"}

        name: Literal["fedasync"] = "fedasync"
        learning_rate: float = declare_stackable(0.1, gt=0)
        """SGD step of the devices, gamma"""
        mixing: float = declare_stackable(0.6, gt=0, le=1)
        """alpha: share of an update without staleness in the server's new model"""
        staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
        """s(d), the factor on alpha at a staleness of d: 1; (1 + d)^-exponent; or 1 up to
        hinge_after and 1 / (hinge_slope (d - hinge_after) + 1) beyond"""
        exponent: float = declare_stackable(0.5, ge=0)
        """a of the polynomial; the default is the paper's experiments'"""
        hinge_slope: float = declare_stackable(10.0, ge=0)
        """a of the hinge; the default is the paper's experiments'"""
        hinge_after: float = declare_stackable(4.0, ge=0)
        """b of the hinge, server steps; the default is the paper's experiments'"""
        rho: float = declare_stackable(0.005, ge=0)
        """the local loss has rho/2 |x - x_tau|^2 added, x_tau as received"""
        sends: Literal["model", "increment"] = "model"
        """what devices send: the model, as in the paper, so that x becomes (1 - a) x + a x_new; or
        its increment, x + a (x_new - x_tau), which is much smaller, and so is the noise that an
        analogue uplink adds to it"""

        def list_notes(self, scenario: Any) -> Iterable[str]:
            name = scenario.transport.name
            shared = registry.load_component("transport", name).counts == "shared"
            if self.sends == "model" and shared:
                yield (
                    f"algorithm.sends: 'model' over transport '{name}' gives the server noise in "
                    "proportion to the model, not to what a device changed of it; "
                    "sends: increment would do"
                )

        def find_conflicts(self) -> Iterator[str]:
            if self.learning_rate * self.rho >= 1:
                yield (
                    "learning_rate times rho must be below 1, or a step on the penalty alone jumps "
                    f"over the received model; got {self.learning_rate:g} times {self.rho:g}"
                )

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        return bool(settings.sends == "increment")

    flops_per_param_step = 5.0
    """The penalty's x - x_tau, times rho, added to the gradient; and the step."""

    @property
    def flops_per_param_round(self) -> float:
        return 1.0 if self.settings.sends == "increment" else 0.0

    def compute_weights(self, context: Context) -> Tensor:
        """Return w_k s_k, of a cohort that has the data shares w_k."""
        return context.cohort.weight * self._compute_staleness_weight(context)

    def _compute_staleness_weight(self, context: Context) -> Tensor:
        """Return s_k [N]."""
        late = context.cohort.staleness.to(context.cohort.weight.dtype)
        if self.settings.staleness == "polynomial":
            return (1.0 + late).pow(-context.gather_hyper("exponent"))
        if self.settings.staleness == "hinge":
            beyond = (late - context.gather_hyper("hinge_after")).clamp_min(0.0)
            return 1.0 / (context.gather_hyper("hinge_slope") * beyond + 1.0)
        return torch.ones_like(late)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        centre, work = get_received_params(broadcast, self.model), context.local_data
        params = self.model.copy_trainable(centre)
        rate, rho = context.gather_hyper("learning_rate"), context.gather_hyper("rho")
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += take_penalised_step_(
                self.model, params, centre, work.draw_batch(step), rate, rho
            )
        if self.settings.sends == "model":
            return {}, build_model_payload(params), loss / work.steps
        return {}, build_increment_(params, broadcast, self.model.shapes), loss / work.steps

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        cohort = context.cohort
        delivered = get_delivered_indicator(received, cohort)
        weight = sum_per_trial(delivered * cohort.weight, cohort)
        share = sum_per_trial(
            delivered * cohort.weight / self._compute_staleness_weight(context), cohort
        )
        a = context.hyper["mixing"] * weight / share.clamp_min(torch.finfo(share.dtype).tiny)
        if self.settings.sends == "increment":
            return {MODEL: torch.addcmul(server[MODEL], a[:, None], received.mean[0][MODEL])}
        mean = replace_delivered(server, received, 0)[MODEL]
        return {MODEL: torch.lerp(server[MODEL], mean, a[:, None])}
