"""Asynchronous averaging, in which a model counts less the staler it is (FedAsync).

For asynchronous uplinks. The staleness of an update is the number of server steps since the device
received its model. The server mixes every delivered model into its own at once. Several devices of
one slot give the weighted mean of the models that the server would have with each device alone. A
device whose silence the receiver does not report counts in this mean.

With `sends: increment` the server adds the increment instead. Steps of the server since the
broadcast then remain, and the noise of an analogue uplink is in proportion to the increment.

References
----------
Xie, Koyejo, Gupta 2020, "Asynchronous Federated Optimization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind
from otafl.algorithms.deliveries import get_delivered_indicator, replace_delivered, sum_per_trial
from otafl.algorithms.parameters import (
    build_increment,
    build_model_payload,
    get_received_params,
    take_penalised_step_,
)
from otafl.core import contracts as c
from otafl.core import registry, settings
from otafl.core.settings import declare_stackable


class FedAsync(Algorithm):
    r"""Asynchronous federated optimisation.

    The server's tensor "model" [S, P] is x. Devices have no state.

    Notes
    -----
    A device that received x_tau descends f(x) + rho/2 |x - x_tau|^2 by SGD to x_new. At step t the
    server computes

    .. math::

        x \leftarrow (1 - a) x + a x_{new}, \quad a = \alpha s(t - \tau)

    where s decreases with the staleness t - tau, which is 0 for an update of the current model. For
    several devices of data shares w_k in one slot, x_new is their mean under the weights w_k s_k,
    and a is the mean of alpha s_k under w_k. An over-the-air sum computes this mean by itself. With
    `sends: increment`

    .. math::

        x \leftarrow x + a (x_{new} - x_\tau).

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
        staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
        """function s(d), the factor of alpha at a staleness of d server steps: constant, 1;
        polynomial, (1 + d)^-exponent; hinge, 1 up to hinge_after and 1 / (hinge_slope (d -
        hinge_after) + 1) beyond"""
        exponent: float = declare_stackable(0.5, ge=0)
        """a of the polynomial; the default is that of the paper's experiments"""
        hinge_slope: float = declare_stackable(10.0, ge=0)
        """a of the hinge; the default is that of the paper's experiments"""
        hinge_after: float = declare_stackable(4.0, ge=0)
        """b of the hinge in server steps; the default is that of the paper's experiments"""
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
            if self.learning_rate * self.rho >= 1:
                yield (
                    "learning_rate times rho must be below 1, because a step on the penalty alone "
                    "otherwise passes the received model; got "
                    f"{self.learning_rate:g} times {self.rho:g}"
                )

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind(cls.needs, is_increment=settings.sends == "increment")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the penalty's x - x_tau, times rho, added to the gradient, and the step."""
        subtractions = 1.0 if self.settings.sends == "increment" else 0.0
        return self.count_step_flops(workload, per_param_step=5.0, per_param_round=subtractions)

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return w_k s_k [N], for a cohort with the data shares w_k."""
        return context.cohort.weight * self._compute_staleness_weight(context)

    def _compute_staleness_weight(self, context: c.Context) -> Tensor:
        """Compute s_k of each row, [N]."""
        late = context.cohort.staleness.to(context.cohort.weight.dtype)
        if self.settings.staleness == "polynomial":
            return (1.0 + late).pow(-context.gather_hyper("exponent"))
        if self.settings.staleness == "hinge":
            beyond = (late - context.gather_hyper("hinge_after")).clamp_min(0.0)
            return 1.0 / (context.gather_hyper("hinge_slope") * beyond + 1.0)
        return torch.ones_like(late)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
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
        return {}, build_increment(params, broadcast, self.model.shapes), loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort = context.cohort
        delivered = get_delivered_indicator(received, cohort)
        weight = sum_per_trial(delivered * cohort.weight, cohort)
        share = sum_per_trial(
            delivered * cohort.weight / self._compute_staleness_weight(context), cohort
        )
        a = context.hyper["mixing"] * weight / share.clamp_min(torch.finfo(share.dtype).tiny)
        if self.settings.sends == "increment":
            return {c.MODEL: torch.addcmul(server[c.MODEL], a[:, None], received.mean[0][c.MODEL])}
        mean = replace_delivered(server, received, 0)[c.MODEL]
        return {c.MODEL: torch.lerp(server[c.MODEL], mean, a[:, None])}
