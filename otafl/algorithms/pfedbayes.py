"""pFedBayes: personalised federated learning via variational Bayesian inference.

Zhang, Li, Li, Guo, Shi 2022, Algorithm 1. Distributions over models are normal and independent in
all parameters: mean mu, standard deviation sigma = ln(1 + exp(rho)). Device i keeps its own, q_i,
and lowers

    E_q [-log P(D_i | theta)] + zeta KL(q || w),   w the device's copy of the global distribution,

by SGD on q through theta = mu + sigma g, g standard normal, one draw a step; then the copy takes a
step on zeta KL(q_i || w), and so on for each minibatch. Sent is what the copy's (mu, rho) have
changed by, and the server averages it. Objectives are divided by the device's number of samples
n_i, which leaves their minima where they are and lets step sizes mean what they mean elsewhere: the
mean loss of the minibatch, and zeta / n_i times the divergence.

The personal model is the mean of q_i after local training; the global one the mean of w.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.config_exchange import PFedBayesConfig
from otafl.algorithms.device_tables import flat_personal_view
from otafl.algorithms.parameters import MODEL, averaged, flat_view
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Batch,
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
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import LayeredModel, Model, flatten, unflatten

RHO = "rho"
_STEP_BITS = 32  # a stream's round is (round << 32) + step


class PFedBayes:
    """Server blocks: "model" [S, P] and "rho" [S, P], w's mean and rho. Device blocks: "personal"
    and "personal_rho" [S, K, P], those of q_i."""

    def __init__(self, config: PFedBayesConfig, model: Model, devices: int) -> None:
        if not isinstance(model, LayeredModel) or any(layer.window for layer in model.layers):
            raise UserError(
                "algorithm.name: 'pfedbayes' draws the weights of fully connected layers, as its "
                "authors do, and the model has others; mlp or softmax_regression would do"
            )
        self.config = config
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        mu = flatten(start(self.model, streams))
        rho = torch.full_like(mu, self.config.rho_start)
        server = {MODEL: mu, RHO: rho}
        return server, {"personal": mu[:, None], "personal_rho": rho[:, None]}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast({MODEL: server[MODEL], RHO: server[RHO]})

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        start_mu, start_rho = broadcast.blocks[MODEL], broadcast.blocks[RHO]
        w_mu, w_rho = start_mu.clone(), start_rho.clone()
        mu, rho = devices["personal"], devices["personal_rho"]
        samples = work.class_counts().sum(1)
        zeta = (hyper["penalty"][cohort.trial] / samples)[:, None]
        rate = hyper["learning_rate"][cohort.trial][:, None]
        own_rate = hyper["personal_learning_rate"][cohort.trial][:, None]
        loss = torch.zeros_like(rate[:, 0])
        draws, sigma = self.config.personal_steps, functional.softplus(rho)
        for step in range(work.steps):
            batch, w_sigma = work.batch(step), functional.softplus(w_rho)
            precision = zeta / w_sigma.square()
            for draw in range(draws):
                tick = (work.round << _STEP_BITS) + step * draws + draw
                noise = streams.device_normal(
                    "pfedbayes", tick, cohort.trial, cohort.device, (self.model.size,)
                )
                loss += self._own_step_(
                    mu, rho, sigma, w_mu, precision, batch, noise, zeta, own_rate
                )
                sigma = functional.softplus(rho)
            _copy_step_(w_mu, w_rho, w_sigma, mu, sigma, zeta, rate)
        state = {"personal": mu, "personal_rho": rho}
        sent = {MODEL: w_mu.sub_(start_mu), RHO: w_rho.sub_(start_rho)}
        return state, (Group(sent),), loss / (work.steps * draws)

    def _own_step_(
        self,
        mu: Tensor,
        rho: Tensor,
        sigma: Tensor,
        w_mu: Tensor,
        precision: Tensor,
        batch: Batch,
        noise: Tensor,
        zeta: Tensor,
        rate: Tensor,
    ) -> Tensor:
        """An SGD step of q = (mu, rho) in place, precision = zeta / w_sigma^2; returns the loss [n]
        of the drawn model. sigma, that of rho, is used up."""
        theta = torch.addcmul(mu, sigma, noise)
        loss, grads = self.model.gradients(unflatten(theta, self.model.shapes), batch)
        by_theta = flatten(grads)
        by_sigma = torch.mul(precision, sigma, out=theta).addcdiv_(zeta, sigma, value=-1.0)
        by_rho = by_sigma.addcmul_(by_theta, noise).mul_(torch.sigmoid(rho))  # sigma' = sigmoid
        by_mu = by_theta.addcmul_(precision, torch.sub(mu, w_mu, out=sigma))
        rho.addcmul_(rate, by_rho, value=-1.0)
        mu.addcmul_(rate, by_mu, value=-1.0)
        return loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        step = hyper["server_learning_rate"][:, None]
        rho = torch.addcmul(server[RHO], step, received.mean[0][RHO])
        return {MODEL: averaged(server, received, hyper), RHO: rho}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {
            "global": flat_view(self.model, server[MODEL]),
            "personal": flat_personal_view(self.model, devices["personal"]),
        }

    def flops(self, samples: int) -> float:
        return self.config.personal_steps * self.model.training_flops(samples)


def _copy_step_(
    w_mu: Tensor,
    w_rho: Tensor,
    w_sigma: Tensor,
    mu: Tensor,
    sigma: Tensor,
    zeta: Tensor,
    rate: Tensor,
) -> None:
    """An SGD step of w = (w_mu, w_rho), w_sigma being its deviation, on zeta KL(q || w) with KL =
    ln(w_sigma / sigma) + (sigma^2 + (mu - w_mu)^2) / (2 w_sigma^2) - 1/2, in place."""
    apart = w_mu - mu
    square = torch.addcmul(sigma.square(), apart, apart)
    by_sigma = (1.0 - square / w_sigma.square()).div_(w_sigma).mul_(torch.sigmoid(w_rho))
    w_mu.addcmul_(rate * zeta, apart / w_sigma.square(), value=-1.0)
    w_rho.addcmul_(rate * zeta, by_sigma, value=-1.0)
