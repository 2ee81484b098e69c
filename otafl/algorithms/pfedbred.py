"""Turn the broadcast model into a prior of each device's own, by Bregman divergence (pFedBreD).

All devices share w; each turns it into its own prior's mean mu, and its personal model theta is the
solution of the Bregman-proximal problem there. A local step on a minibatch X is, for the spherical
Gaussian prior,

    theta ~ argmin f(theta; X) + lambda/2 ||theta - mu||^2       by K gradient steps of size alpha
    w <- w - alpha_m lambda (mu - theta)                         # eq. (13), first order

and the strategies differ in mu (eq. (14), "last" being w at the end of this device's last round):

    none   mu = w                                                which is pFedMe
    lg     mu = w - eta_alpha grad f(w)
    meg    mu = w - eta (last - theta)
    mh     mu = w - eta_alpha grad f(w) - eta (last - theta)

In variant "paper" the solver starts at mu. In "c2" (eq. (24)) the gradient in mh is taken at
w - eta_alpha grad f(w). Variant "code" is what the authors' program does: the solver starts at w,
but at mu in lg; and mh moves w itself by the gradient of "c2", with two minibatches, before the
rest. What is sent is the increment of w (Algorithm 1, line 12); theta and last stay at the device.
Local steps and the minibatch are `training.local_steps` and `training.batch_size`.

References
----------
Shi, Zhang, Feng, Ye, Lv, et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information
    Overlooked in Federated Learning", NeurIPS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    Outcome,
    Views,
    declare_penalty,
    declare_personal_rate,
)
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment_,
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
    take_step,
)
from otafl.core.contracts import MODEL, Broadcast, Hyper, LocalContext, Tensors
from otafl.core.rng import Streams
from otafl.core.settings import declare_removed, declare_stackable
from otafl.factorised.coherence import coherence
from otafl.models.base import Model, flatten
from otafl.models.span import Gradient, InPlaceDifference, Span

UPDATE = "update"
"""The device block of the last envelope gradient, lambda (mu - theta), [S, K, P]."""


class Prior(NamedTuple):
    """Hold the points of a local step: the local model that the envelope's gradient moves, mu, and
    where the solver starts. loss: [n], where a gradient was taken before the solver's."""

    base: Tensor
    mean: Tensor
    start: Tensor
    loss: Tensor | None


class PFedBreD(Algorithm):
    """Keeps server block "model" [S, P], which is w, and device blocks "personal.<name>", theta,
    and for meg and mh "last.<name>", both the server's start at first; "update" [S, K, P] with
    `coherence`."""

    private_state: ClassVar[str] = (
        "theta, and w at the end of the device's last round: the memory is of the device's "
        "own envelope, not of the server's step"
    )

    averages_increments: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["pfedbred"] = "pfedbred"
        _gone = declare_removed(family="gaussian")  # other priors do not fit parameters of any sign
        strategy: Literal["none", "lg", "meg", "mh"] = "mh"
        """the prior's mean: none (the local model, which is pFedMe), lg (a step along the loss
        gradient), meg (along the memorised envelope gradient), mh (both)"""
        variant: Literal["code", "paper", "c2"] = "code"
        """code: as the authors' program; paper: as equation (14); c2: mh as equation (24) of the
        appendix"""
        c2_two_batches: bool = False
        """with variant: c2, a minibatch of its own for the inner gradient"""
        penalty: float = declare_penalty(15.0, PENALTY)
        personal_learning_rate: float = declare_personal_rate()
        eta: float = declare_stackable(0.05, ge=0)
        """step along the memorised envelope gradient, of meg and mh; the penalty is absorbed in
        it"""
        eta_alpha: float = declare_stackable(0.01, ge=0)
        """step along the loss gradient in the prior's mean, of lg and mh"""
        prox_steps: int = Field(5, ge=1, description=PROX_STEPS)
        coherence: bool = False
        """also measure the generalised coherence of the devices' envelope gradients (figure 2);
        each device then keeps its last one"""

        def find_conflicts(self) -> Iterator[str]:
            yield from find_divergence(self.personal_learning_rate, self.penalty)
            if self.variant == "c2" and self.strategy != "mh":
                yield (
                    f"variant: c2 is a form of mh, and strategy is {self.strategy}; strategy: mh, "
                    "or variant: code or paper, would do"
                )
            if self.c2_two_batches and self.variant != "c2":
                yield (
                    f"c2_two_batches is of variant: c2, and variant is {self.variant}; leave it out"
                )

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.has_memory = settings.strategy in ("meg", "mh")
        self.device_models = ("personal", "last") if self.has_memory else ("personal",)
        self._two_batches = settings.strategy == "mh" and (
            settings.variant == "code" or settings.c2_two_batches
        )

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        if self.settings.coherence:
            devices[UPDATE] = torch.zeros_like(server[MODEL])[:, None]
        return server, devices

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        form, settings, work = self.form, self.settings, context.local_data
        rates = {name: context.gather_hyper(name) for name in context.hyper}
        w = form.copy_params(get_received_params(broadcast, self.model))
        theta = form.adopt_params(select_prefix(devices, "personal"))
        last = form.adopt_params(select_prefix(devices, "last")) if self.has_memory else None
        update: Tensors = {}
        loss = torch.zeros_like(rates["penalty"])
        for index in range(work.steps):
            pull = [] if last is None else [InPlaceDifference(theta, last)]
            beside = work.draw_batch(index, draw_index=1) if self._two_batches else None
            span = form.make_span(work.draw_batch(index), w, *pull, second_batch=beside)
            prior = self._choose_prior(
                span, span.compute_second_gradient() if self._two_batches else None, rates
            )
            base, start = prior.base, prior.start
            solved, moved, first = take_envelope_step(
                span, base, start, prior.mean, rates, settings.prox_steps
            )
            loss += first if prior.loss is None else prior.loss
            if settings.coherence and index == work.steps - 1:
                step = flatten(form.to_params(span.subtract_points(solved, prior.mean)))
                update = {UPDATE: step * rates["penalty"][:, None]}
            span.write_each_((moved, w), (solved, theta))
        local = form.to_params(w)
        state = add_prefix("personal", form.to_params(theta)) | update
        if self.has_memory:
            state |= add_prefix("last", local)
        return state, build_increment_(local, broadcast, self.model.shapes), loss / work.steps

    def _choose_prior(self, span: Span, inner: Gradient | None, rates: Tensors) -> Prior:
        """Choose the points of a local step. inner: the slope at w on a minibatch of its own, where
        there is one."""
        strategy, variant = self.settings.strategy, self.settings.variant
        w = span.origin
        if strategy == "none":
            return Prior(w, w, w, None)
        if strategy == "meg":
            mean = _apply_memory(span, w, rates)  # eq. (14), meg
            return Prior(w, mean, w if variant == "code" else mean, None)
        slope = first = span.compute_gradient(w) if inner is None else inner
        if strategy == "mh" and variant != "paper":  # the gradient of eq. (24)
            slope = span.compute_gradient(take_step(span, w, first, rates["eta_alpha"]))
        ahead = take_step(span, w, slope, rates["eta_alpha"])
        if strategy == "lg":
            return Prior(w, ahead, ahead, first.loss)  # eq. (14), lg
        mean = _apply_memory(span, ahead, rates)  # eq. (14), mh
        if variant == "code":
            return Prior(ahead, mean, ahead, first.loss)
        return Prior(w, mean, mean, first.loss)

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        views = super().build_views(server, devices)
        if self.has_memory:
            views["local"] = make_device_view(self.model, devices, "last")
        return views

    def compute_metrics(self, server: Tensors, devices: Tensors) -> dict[str, Tensor]:
        """Return the generalised coherence of the devices' last envelope gradients, if it is
        kept."""
        if not self.settings.coherence:
            return {}
        value, log_det = coherence(devices[UPDATE])
        return {"update_coherence": value, "update_coherence_log": log_det}

    @property
    def is_per_device(self) -> bool:
        return not self.settings.coherence

    @property
    def _num_prior_steps(self) -> int:
        """Count the gradient steps to the prior's mean."""
        meta = {"none": 0, "meg": 0, "lg": 1, "mh": 1 if self.settings.variant == "paper" else 2}
        return meta[self.settings.strategy]

    @property
    def gradients_per_step(self) -> int:
        return int(self.settings.prox_steps) + self._num_prior_steps

    @property
    def flops_per_param_step(self) -> float:
        """Count the proximal steps and that of w, the steps to the prior's mean, and the one along
        the memorised gradient, last - theta."""
        mean = 2.0 * self._num_prior_steps + (3.0 if self.has_memory else 0.0)
        return PENALISED * self.settings.prox_steps + ENVELOPE + mean


def _apply_memory(span: Span, point: Tensor, rates: Tensors) -> Tensor:
    """Return point - eta (last - theta): the memorised envelope gradient, span's only direction."""
    (pull,) = span.directions
    return torch.addcmul(point, rates["eta"][:, None], pull, value=-1.0)
