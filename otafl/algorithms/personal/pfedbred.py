"""Personal models by Moreau envelopes (pFedMe) and by priors of each device (pFedBreD).

With pFedMe each local step solves the proximal problem around the local model on one minibatch, by
a few gradient steps, and descends its Moreau envelope. The personal model is the solution after
local training. The authors' beta is `server_learning_rate`. The published program differs in three
points (`implementation: original`, for comparison). Its proximal steps have a weight decay of 1e-3.
They start at the solution of the last local step, and at the local model only in the first step of
a round. The tensors of its personal model are those of the local model, so its personal model is
the local one.

With pFedBreD all devices share a model w. Each turns it into the mean mu of its own prior, and its
personal model is the solution of the Bregman-proximal problem there. Strategies differ in mu: the
local model (none, which is pFedMe), a step along the loss gradient (lg), along the memorised
envelope gradient (meg), or along both (mh). In variant "paper" the solver starts at mu. In "c2",
eq. (24), the gradient in mh is taken after a first gradient step. Variant "code" is the authors'
program: the solver starts at w, in lg at mu; and mh first moves w itself by the gradient of "c2",
with two minibatches. Devices send the increment of w (Algorithm 1, line 12) and keep their personal
model and memory. Local steps and minibatch are `training.local_steps` and `training.batch_size`.

References
----------
Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", Algorithm 1.
Shi, Zhang, Feng, Ye, Lv, et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information
    Overlooked in Federated Learning", NeurIPS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PersonalSettings, Views
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment,
    get_received_params,
    make_device_view,
    select_prefix,
)
from otafl.algorithms.prox import (
    ENVELOPE,
    PENALISED,
    PENALTY,
    PROX_STEPS,
    find_divergence,
    take_envelope_step,
    take_gradient_steps,
    take_step,
)
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.factorised.measures import coherence
from otafl.models.base import Model, flatten
from otafl.models.span import Gradient, Span, subtract_params


class PFedMe(Algorithm):
    r"""Personalised federated learning with Moreau envelopes.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are the personal
    model, initially the server's start.

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    K gradient steps of size alpha from w solve the proximal problem on a minibatch X, and w
    descends its envelope:

    .. math::

        \theta \approx \mathrm{argmin} \ f(\theta; X) + \frac{\lambda}{2} \|\theta - w\|^2, \quad w
        \leftarrow w - \eta \lambda (w - \theta)

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(PersonalSettings):
        name: Literal["pfedme"] = "pfedme"
        penalty: float = declare_stackable(15.0, ge=0, description=PENALTY)
        prox_steps: int = Field(5, ge=1, description=PROX_STEPS)
        implementation: Literal["paper", "original"] = "paper"
        """form of the step: paper, as published; original, the authors' program, whose proximal
        steps have a weight decay and start at the end of the last local step, and whose personal
        model is the local one"""
        weight_decay: float = declare_stackable(1e-3, ge=0)
        """weight decay in each proximal step, with implementation: original"""

        def find_conflicts(self) -> Iterator[str]:
            return find_divergence(self.personal_learning_rate, self.penalty)

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.constants = {"gradients_per_step": float(settings.prox_steps)}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        as_published = self.settings.implementation == "paper"
        rates = {name: context.gather_hyper(name) for name in context.hyper}
        received = get_received_params(broadcast, self.model)
        w = form.copy_params(received)
        theta = form.copy_params(received)  # where the first step of "original" starts
        loss, steps = torch.zeros_like(rates["penalty"]), self.settings.prox_steps
        for index in range(work.steps):
            batch = work.draw_batch(index)
            if as_published:
                span = form.make_span(batch, w)
                at = span.origin
                solved, moved, first = take_envelope_step(span, at, at, at, rates, steps)
            else:
                # decay and penalty together pull towards lambda / (lambda + decay) w, with the
                # weight lambda + decay
                whole = form.copy_params(form.to_params(w))
                span = form.make_span(batch, theta, subtract_params(w, theta), whole)
                at = span.origin + span.directions[0]
                both = rates["penalty"] + rates["weight_decay"]
                share = (rates["weight_decay"] / both)[:, None]
                shrunk = torch.addcmul(at, share, span.directions[1], value=-1.0)
                rate = rates["personal_learning_rate"]
                solved, first = take_gradient_steps(span, span.origin, shrunk, rate, both, steps)
                along = (rates["learning_rate"] * rates["penalty"])[:, None]
                moved = torch.addcmul(at, along, solved - at)
            span.write_(moved, w)
            span.write_(solved, theta)
            loss += first
        local = form.to_params(w)
        sent = build_increment(local, broadcast, self.model.shapes)
        personal = form.to_params(theta) if as_published else local
        return add_prefix("personal", personal), sent, loss / work.steps

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the proximal steps and the step of w.

        "original" also computes its point without decay.
        """
        local = ENVELOPE if self.settings.implementation == "paper" else ENVELOPE + 2.0
        steps = self.settings.prox_steps
        return self.count_step_flops(workload, steps, PENALISED * steps + local)


UPDATE = "update"
"""Name of the device's tensor of the last envelope gradient, lambda (mu - theta), [S, K, P]."""


Prior = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Points of a local step, [n, Q] each: the local model that the envelope's gradient moves, the mean
mu of the prior, and the start of the solver; and the loss [n], if a gradient was computed before
the solver's."""


class PFedBreD(Algorithm):
    r"""Personalised federated learning with Bregman divergence.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are theta and, for
    meg and mh, "last.NAME", w at the end of the device's last round; both are initially the
    server's start. "update" [S, K, P] exists with `coherence`.

    Whatever the uplink does, devices keep theta, and w at the end of the device's last round:
    the memory is of the device's own envelope, not of the server's step.

    Notes
    -----
    A local step on a minibatch X is, for the spherical Gaussian prior, K gradient steps of size
    alpha on

    .. math::

        \theta \approx \mathrm{argmin} \ f(\theta; X) + \frac{\lambda}{2} \|\theta - \mu\|^2

    and the first-order step of eq. (13),

    .. math::

        w \leftarrow w - \alpha_m \lambda (\mu - \theta).

    The means are those of eq. (14), where w_R is "last":

    .. math::

        \mathrm{lg:} \ \mu = w - \eta_\alpha \nabla f(w) \quad \mathrm{meg:} \ \mu = w - \eta (w_R -
        \theta)

    .. math::

        \mathrm{mh:} \ \mu = w - \eta_\alpha \nabla f(w) - \eta (w_R - \theta)

    In "c2" the gradient of mh is taken at w - eta_alpha grad f(w), eq. (24).

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    class Settings(PersonalSettings):
        name: Literal["pfedbred"] = "pfedbred"
        strategy: Literal["none", "lg", "meg", "mh"] = "mh"
        """mean of the prior: none, the local model (which is pFedMe); lg, a step along the loss
        gradient; meg, a step along the memorised envelope gradient; mh, both"""
        variant: Literal["code", "paper", "c2"] = "code"
        """form of the step: code, the authors' program; paper, eq. (14); c2, mh by eq. (24) of the
        appendix"""
        penalty: float = declare_stackable(15.0, ge=0, description=PENALTY)
        eta: float = declare_stackable(0.05, ge=0)
        """step size along the memorised envelope gradient, of meg and mh; includes the penalty"""
        eta_alpha: float = declare_stackable(0.01, ge=0)
        """step size along the loss gradient in the mean of the prior, of lg and mh"""
        prox_steps: int = Field(5, ge=1, description=PROX_STEPS)
        coherence: bool = False
        """whether to measure the generalised coherence of the devices' envelope gradients (figure
        2), of which each device then keeps its last one"""

        def find_conflicts(self) -> Iterator[str]:
            yield from find_divergence(self.personal_learning_rate, self.penalty)
            if self.variant == "c2" and self.strategy != "mh":
                yield (
                    f"variant: c2 needs strategy: mh; got strategy: {self.strategy}, use strategy: "
                    "mh, or variant: code or paper"
                )

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.has_memory = settings.strategy in ("meg", "mh")
        self.is_per_device = not settings.coherence
        self.device_models = ("personal", "last") if self.has_memory else ("personal",)
        to_mean = {"none": 0, "meg": 0, "lg": 1, "mh": 1 if settings.variant == "paper" else 2}
        self._num_prior_steps = to_mean[settings.strategy]
        self.constants = {"gradients_per_step": float(settings.prox_steps + self._num_prior_steps)}
        self._two_batches = settings.strategy == "mh" and settings.variant == "code"

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        if self.settings.coherence:
            devices[UPDATE] = torch.zeros_like(server[c.MODEL])[:, None]
        return server, devices

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, settings, work = self.form, self.settings, context.local_data
        rates = {name: context.gather_hyper(name) for name in context.hyper}
        w = form.copy_params(get_received_params(broadcast, self.model))
        theta = form.adopt_params(select_prefix(devices, "personal"))
        last = form.adopt_params(select_prefix(devices, "last")) if self.has_memory else None
        update: c.Tensors = {}
        loss = torch.zeros_like(rates["penalty"])
        for index in range(work.steps):
            pull = [] if last is None else [subtract_params(last, theta, out=theta)]
            beside = work.draw_batch(index, draw_index=1) if self._two_batches else None
            span = form.make_span(work.draw_batch(index), w, *pull, second_batch=beside)
            inner = span.compute_second_gradient() if self._two_batches else None
            base, mean, start, before = self._choose_prior(span, inner, rates)
            solved, moved, first = take_envelope_step(
                span, base, start, mean, rates, settings.prox_steps
            )
            loss += first if before is None else before
            if settings.coherence and index == work.steps - 1:
                step = flatten(form.to_params(span.subtract_points(solved, mean)))
                update = {UPDATE: step * rates["penalty"][:, None]}
            span.write_(moved, w)
            span.write_(solved, theta)
        local = form.to_params(w)
        state = add_prefix("personal", form.to_params(theta)) | update
        if self.has_memory:
            state |= add_prefix("last", local)
        return state, build_increment(local, broadcast, self.model.shapes), loss / work.steps

    def _choose_prior(self, span: Span, inner: Gradient | None, rates: c.Tensors) -> Prior:
        """Choose the points of a local step.

        inner: gradient at w on a minibatch of its own, if there is one.
        """
        strategy, variant = self.settings.strategy, self.settings.variant
        w = span.origin
        if strategy == "none":
            return w, w, w, None
        if strategy == "meg":
            mean = _apply_memory(span, w, rates)  # eq. (14), meg
            return w, mean, w if variant == "code" else mean, None
        slope = first = span.compute_gradient(w) if inner is None else inner
        if strategy == "mh" and variant != "paper":  # the gradient of eq. (24)
            slope = span.compute_gradient(take_step(span, w, first, rates["eta_alpha"]))
        ahead = take_step(span, w, slope, rates["eta_alpha"])
        if strategy == "lg":
            return w, ahead, ahead, first.loss  # eq. (14), lg
        mean = _apply_memory(span, ahead, rates)  # eq. (14), mh
        if variant == "code":
            return ahead, mean, ahead, first.loss
        return w, mean, mean, first.loss

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = super().build_views(server, devices)
        if self.has_memory:
            views["local"] = make_device_view(self.model, devices, "last")
        return views

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure the generalised coherence of the devices' last envelope gradients, if kept."""
        if not self.settings.coherence:
            return {}
        value, log_det = coherence(devices[UPDATE])
        return {"update_coherence": value, "update_coherence_log": log_det}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the proximal steps, the step of w, and the steps to the prior's mean.

        The step along the memorised gradient, last - theta, has three operations per parameter.
        """
        mean = 2.0 * self._num_prior_steps + (3.0 if self.has_memory else 0.0)
        each = PENALISED * self.settings.prox_steps + ENVELOPE + mean
        gradients = self.settings.prox_steps + self._num_prior_steps
        return self.count_step_flops(workload, gradients, each)


def _apply_memory(span: Span, point: Tensor, rates: c.Tensors) -> Tensor:
    """Compute point - eta (last - theta), along the memorised envelope gradient.

    This gradient is the only direction of the span.
    """
    (pull,) = span.directions
    return torch.addcmul(point, rates["eta"][:, None], pull, value=-1.0)
