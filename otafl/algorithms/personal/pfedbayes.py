"""A normal distribution over models at each device, pulled to a global one (pFedBayes).

Personalised federated learning via variational Bayesian inference. Each device has its own
distribution, with independent parameters of mean mu and standard deviation ln(1 + exp(rho)), and a
copy of the global one. For each minibatch its own distribution takes SGD steps on the loss of a
random draw and on the divergence from the copy. Then the copy takes a step on the divergence.
Devices send the change of the copy's (mu, rho), and the server averages it. `learning_rate` is that
of the copy.

The objectives are divided by the device's number of samples n_i. This leaves their minima unchanged
and gives step sizes their usual meaning. Equal steps of length eta diverge on the divergence alone
if eta zeta / (n_i sigma^2) > 2. Examples are devices with few samples, and a sigma that the noise
of an uplink has made small. That would spoil the mean of all devices. For such a device zeta / n_i
is lowered in this round to sigma^2 / eta, with the least sigma of the global distribution.

The personal model is the mean of the device's distribution after local training. The global one is
the mean of the global distribution.

References
----------
Zhang, Li, Li, Guo, Shi 2022, "Personalized Federated Learning via Variational Bayesian Inference",
    Algorithm 1.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.base import Algorithm, Outcome, PersonalSettings, Views
from otafl.algorithms.parameters import apply_mean_increment, make_flat_view
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_purpose, make_step_key
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, flatten, unflatten
from otafl.models.layered import LayeredModel
from otafl.models.layers import Conv

NOISE = declare_purpose("pfedbayes", __name__)

RHO = "rho"

DRAW_STEP = 25.0
"""Operations per parameter of a step on one draw.

Normal number by Box and Muller's method (4), theta (2), gradients by sigma (5) and mu (3), steps of
rho (6) and mu (2), sigma (3). A logistic function and a softplus are three each.
"""

COPY_STEP = 23.0
"""Operations per parameter of a step of the global distribution's copy, 5 for its precision."""

Normal = tuple[Tensor, Tensor]
"""Mean mu and rho of a distribution, [n, P] each."""


class PFedBayes(Algorithm):
    r"""Variational Bayesian personalised federated learning.

    The server's tensors "model" [S, P] and "rho" [S, P] are the mean and rho of the global
    distribution w. The device's tensors "personal" and "personal_rho" [S, K, P] are those of q_i.

    Whatever the uplink does, devices keep the personal distribution: it is trained for the
    device, from what it received.

    Notes
    -----
    Device i descends, through theta = mu + sigma g with one standard normal g a step,

    .. math::

        E_q \left[ -\log P(D_i | \theta) \right] + \zeta \, \mathrm{KL}(q \| w)

    where w is its copy of the global distribution. Then the copy takes a step on zeta KL(q_i || w).

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    is_per_device = True

    class Settings(PersonalSettings):
        name: Literal["pfedbayes"] = "pfedbayes"
        penalty: float = declare_stackable(10.0, ge=0)
        """zeta, weight of the divergence from the global distribution in the objective"""
        rho_start: float = -2.5
        """initial rho; the standard deviation is ln(1 + exp(rho))"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        if not isinstance(model, LayeredModel) or any(
            isinstance(one, Conv) for one in model.layers
        ):
            raise UserError(
                "algorithm.name: 'pfedbayes' needs a model of fully connected layers, as that of "
                "its authors; use mlp or softmax_regression"
            )

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, _ = super().init(streams, hyper)
        mu = server[c.MODEL]
        rho = torch.full_like(mu, self.settings.rho_start)
        return server | {RHO: rho}, {"personal": mu[:, None], "personal_rho": rho[:, None]}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        work, cohort = context.local_data, context.cohort
        of_device = cohort.trial, cohort.device, (self.model.num_params,)
        start_mu, start_rho = broadcast.tensors[c.MODEL], broadcast.tensors[RHO]
        w_mu, w_rho = start_mu.clone(), start_rho.clone()
        mu, rho = devices["personal"], devices["personal_rho"]
        rate = context.gather_hyper("learning_rate")[:, None]
        own_rate = context.gather_hyper("personal_learning_rate")[:, None]
        zeta = (context.gather_hyper("penalty") / work.count_samples())[:, None]
        zeta = _limit_step(zeta, rate, own_rate, w_rho)
        loss = torch.zeros_like(rate[:, 0])
        sigma = functional.softplus(rho)
        for step in range(work.steps):
            batch, w_sigma = work.draw_batch(step), functional.softplus(w_rho)
            precision = zeta / w_sigma.square()
            noise = context.streams.draw_device_normal(
                NOISE, make_step_key(context.round, step), *of_device
            )
            theta = torch.addcmul(mu, sigma, noise)
            one, grads = self.model.compute_gradients(unflatten(theta, self.model.shapes), batch)
            loss, by_theta = loss + one, flatten(grads)
            by_sigma = torch.mul(precision, sigma, out=theta).addcdiv_(zeta, sigma, value=-1.0)
            by_sigma.addcmul_(by_theta, noise)
            by_theta.addcmul_(precision, torch.sub(mu, w_mu, out=sigma))  # the gradient by mu
            rho.addcmul_(own_rate, by_sigma.mul_(torch.sigmoid(rho)), value=-1.0)
            mu.addcmul_(own_rate, by_theta, value=-1.0)
            sigma = functional.softplus(rho)  # whose slope is sigmoid(rho)
            _take_copy_step_((w_mu, w_rho), w_sigma, mu, sigma, rate * zeta)
        state = {"personal": mu, "personal_rho": rho}
        sent = {c.MODEL: w_mu.sub_(start_mu), RHO: w_rho.sub_(start_rho)}
        return state, (c.Group(sent),), loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return {
            name: apply_mean_increment(server, received, context.hyper, name)
            for name in (c.MODEL, RHO)
        }

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        personal = make_flat_view(self.model, devices["personal"].flatten(0, 1), "device")
        return super().build_views(server, devices) | {"personal": personal}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps on draws and on the copy, and the increments of mu and rho."""
        each = DRAW_STEP + COPY_STEP
        return self.count_step_flops(workload, per_param_step=each, per_param_round=2.0)


def _limit_step(zeta: Tensor, rate: Tensor, own_rate: Tensor, w_rho: Tensor) -> Tensor:
    """Return zeta / n_i [n, 1], lowered if the steps on the divergence alone would diverge.

    With the lowered value the longer of the two steps makes mu and the mean of w equal.
    """
    least = functional.softplus(w_rho.amin(1, keepdim=True)).square()  # sigma^2 where it is least
    curvature = zeta / least  # of the divergence alone
    grows = ((1.0 - own_rate * curvature) * (1.0 - rate * curvature)).abs() > 1.0
    return torch.where(grows, least / torch.maximum(rate, own_rate), zeta)


def _take_copy_step_(w: Normal, w_sigma: Tensor, mu: Tensor, sigma: Tensor, step: Tensor) -> None:
    """Take an SGD step of w on KL(q || w), in place.

    KL(q || w) = ln(w_sigma / sigma) + (sigma^2 + (mu - w_mu)^2) / (2 w_sigma^2) - 1/2, where
    w_sigma is the deviation of w.
    """
    w_mu, w_rho = w
    apart = w_mu - mu
    square = torch.addcmul(sigma.square(), apart, apart)
    by_sigma = (1.0 - square / w_sigma.square()).div_(w_sigma).mul_(torch.sigmoid(w_rho))
    w_mu.addcmul_(step, apart / w_sigma.square(), value=-1.0)
    w_rho.addcmul_(step, by_sigma, value=-1.0)
