"""pFedBreD: personalised federated learning by Bregman divergence, with personalised priors.

Shi, Zhang, Feng, Ye, Lv, et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information
Overlooked in Federated Learning" (NeurIPS). All devices share w; each turns it into its own prior's
mean mu. A local step on a minibatch X is, for the spherical Gaussian prior,

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
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otafl.algorithms.config_prior import PFedBreDConfig
from otafl.algorithms.parameters import (
    MODEL,
    averaged,
    device_view,
    flat_view,
    named,
    own,
    shared_start,
)
from otafl.algorithms.prox import envelope_step, sent, stepped
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.factorised.coherence import coherence
from otafl.models.base import Model, flatten, unflatten
from otafl.models.span import Slope, Span, Towards, form_of

UPDATE = "update"
"""The device block of the last envelope gradient, lambda (mu - theta), [S, K, P]."""


class Rates(NamedTuple):
    """A chunk's step sizes and penalty, [n]."""

    penalty: Tensor
    personal_learning_rate: Tensor
    learning_rate: Tensor
    eta: Tensor
    eta_alpha: Tensor


class Prior(NamedTuple):
    """Points of a local step: the local model that the envelope's gradient moves, mu, and where
    the solver starts. loss: [n], where a gradient was taken before the solver's."""

    base: Tensor
    mean: Tensor
    start: Tensor
    loss: Tensor | None


class PFedBreD:
    """Server block "model" [S, P], which is w. Device blocks: "personal.<name>", theta, and for meg
    and mh "last.<name>", both the server's start at first; "update" [S, K, P] with `coherence`."""

    def __init__(self, config: PFedBreDConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.form = form_of(model)
        self.remembers = config.strategy in ("meg", "mh")
        self._two_batches = config.strategy == "mh" and (
            config.variant == "code" or config.c2_two_batches
        )

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        devices = shared_start("personal", flat, self.model)
        if self.remembers:
            devices |= shared_start("last", flat, self.model)
        if self.config.coherence:
            devices[UPDATE] = torch.zeros_like(flat)[:, None]
        return {MODEL: flat}, devices

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
        form, config = self.form, self.config
        rates = Rates(*(hyper[name][cohort.trial] for name in Rates._fields))
        received = unflatten(broadcast.blocks[MODEL], self.model.shapes)
        w = form.hold(received)
        theta = form.take(own(devices, "personal"))
        last = form.take(own(devices, "last")) if self.remembers else None
        loss = torch.zeros_like(rates.penalty)
        for index in range(work.steps):
            pull = [] if last is None else [Towards(theta, last)]
            beside = work.batch(index, draw=1) if self._two_batches else None
            span = form.span(work.batch(index), w, *pull, beside=beside)
            prior = self._prior(span, span.slope_beside() if self._two_batches else None, rates)
            solved, moved, first = envelope_step(
                span,
                prior.base,
                prior.start,
                prior.mean,
                rates.personal_learning_rate,
                rates.penalty,
                config.prox_steps,
                rates.learning_rate,
            )
            loss += first if prior.loss is None else prior.loss
            if config.coherence and index == work.steps - 1:
                step = flatten(form.blocks(span.between(solved, prior.mean)))
                devices = {UPDATE: step * rates.penalty[:, None]}
            span.write_each_((moved, w), (solved, theta))
        state = named("personal", form.blocks(theta))
        local = form.blocks(w)
        if self.remembers:
            state |= named("last", local)
        if config.coherence:
            state[UPDATE] = devices[UPDATE]
        return state, sent(local, broadcast.blocks[MODEL], self.model), loss / work.steps

    def _prior(self, span: Span, inner: Slope | None, rates: Rates) -> Prior:
        """inner: the slope at w on a minibatch of its own, where there is one."""
        strategy, variant = self.config.strategy, self.config.variant
        w = span.origin
        if strategy == "none":
            return Prior(w, w, w, None)
        if strategy == "meg":
            mean = _recalled(span, w, rates)  # eq. (14), meg
            return Prior(w, mean, w if variant == "code" else mean, None)
        slope = first = span.slope(w) if inner is None else inner
        if strategy == "mh" and variant != "paper":  # the gradient of eq. (24)
            slope = span.slope(stepped(span, w, first, rates.eta_alpha))
        ahead = stepped(span, w, slope, rates.eta_alpha)
        if strategy == "lg":
            return Prior(w, ahead, ahead, first.loss)  # eq. (14), lg
        mean = _recalled(span, ahead, rates)  # eq. (14), mh
        if variant == "code":
            return Prior(ahead, mean, ahead, first.loss)
        return Prior(w, mean, mean, first.loss)

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return {MODEL: averaged(server, received, hyper)}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        views = {
            "global": flat_view(self.model, server[MODEL]),
            "personal": device_view(self.model, devices, "personal"),
        }
        if self.remembers:
            views["local"] = device_view(self.model, devices, "last")
        return views

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        """The generalised coherence of the devices' last envelope gradients, if it is kept."""
        if not self.config.coherence:
            return {}
        value, log_det = coherence(devices[UPDATE])
        return {"update_coherence": value, "update_coherence_log": log_det}

    def constants(self) -> dict[str, float]:
        return {"gradients_per_step": float(self._gradients)}

    @property
    def _gradients(self) -> int:
        """Gradients of a local step."""
        config = self.config
        meta = {"none": 0, "meg": 0, "lg": 1, "mh": 1 if config.variant == "paper" else 2}
        return config.prox_steps + meta[config.strategy]

    def flops(self, samples: int) -> float:
        return self._gradients * self.model.training_flops(samples)


def _recalled(span: Span, point: Tensor, rates: Rates) -> Tensor:
    """point - eta (last - theta): the memorised envelope gradient, span's only direction."""
    (pull,) = span.directions
    return torch.addcmul(point, rates.eta[:, None], pull, value=-1.0)
