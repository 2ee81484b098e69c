"""FedEM: federated expectation maximisation of a mixture.

Marfoq, Neglia, Bellet, Kameni, Vidal 2021, "Federated Multi-Task Learning under a Mixture of
Distributions", Algorithm 1 and section 3.2. M models theta_m that all share; device k mixes their
predictions with weights pi_k of its own. In a round, from the broadcast models:

    E:  q_k(z_s = m) ~ pi_km exp(-l(h_m(x_s), y_s)), summing to one over m
    M:  pi_km = mean of q_k(z_s = m) over all samples of the device
        theta_km by SGD on the loss whose samples s have weight q_k(z_s = m)

and the server averages each model. The posterior of a minibatch's samples is computed anew from the
broadcast models and the old pi: the same numbers as those of the E-step on all samples.

The personal model is the mixture of the averaged models by the device's pi (of its last round), the
global one that by the mean of all devices' pi, a diagnostic: pi is never sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import FedEMConfig
from otafl.algorithms.parameters import MODEL, averaged, copied
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
from otafl.models.base import LayeredModel, Model, flatten, unflatten, uniform_start

PI = "mixing"


class FedEM:
    """Server block "model" [S, M * P]: the models side by side. Device block "mixing" [S, K, M]:
    pi, equal weights at first."""

    def __init__(self, config: FedEMConfig, model: Model, devices: int) -> None:
        self.components = config.components
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = torch.cat([flatten(one) for one in self._starts(streams)], 1)
        equal = flat.new_full((len(flat), 1, self.components), 1.0 / self.components)
        return {MODEL: flat}, {PI: equal}

    def _starts(self, streams: Streams) -> list[Blocks]:
        """Of each component, all different: equal ones would stay equal for ever. The first is the
        start of the other methods."""
        starts = [start(self.model, streams)]
        for m in range(1, self.components):

            def draw(name: str, shape: tuple[int, ...], m: int = m) -> Tensor:
                return streams.uniform(f"init/{m}/{name}", 0, shape).clone()

            one = self.model.init(draw)
            if all(torch.equal(block, starts[0][name]) for name, block in one.items()):
                if not isinstance(self.model, LayeredModel):
                    raise UserError(
                        f"algorithm.components: {self.components} models from the same start stay "
                        "the same, and this model's start is not random; components: 1 would do"
                    )
                one = uniform_start(self.model.layers, draw)
            starts.append(one)
        return starts

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
        update = broadcast.blocks[MODEL]
        old = self._parts(update)
        log_pi = devices[PI].log()
        everything = work.full()
        q = self._posterior(old, log_pi, everything)
        share = everything.weight
        pi = q.mean(-1) if share is None else (q * share[:, None]).sum(-1)  # [n, M]
        new = [copied(one) for one in old]
        rate = hyper["learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            q = self._posterior(old, log_pi, batch)
            q = q / q.shape[-1] if batch.weight is None else q * batch.weight[:, None]
            for m, params in enumerate(new):
                weighted = Batch(batch.x, batch.y, q[:, m])
                loss += self.model.sgd_(params, weighted, rate)
        for params, received in zip(new, old, strict=True):  # the increment, in its place
            for name, block in received.items():
                torch.sub(params[name], block, out=block)
        return {PI: pi}, (Group({MODEL: update}),), loss / work.steps

    def _parts(self, flat: Tensor) -> list[Blocks]:
        """The components [n, *shape] of flat [n, M * P], views of it."""
        return [unflatten(one, self.model.shapes) for one in flat.split(self.model.size, 1)]

    def _posterior(self, parts: Sequence[Blocks], log_pi: Tensor, batch: Batch) -> Tensor:
        """q [n, M, B] of the samples, each summing to one over M."""
        label = batch.y[..., None]
        log_likelihood = [
            torch.log_softmax(self.model.training_logits(one, batch.x, batch.weight), -1)
            .gather(-1, label)
            .squeeze(-1)
            for one in parts
        ]
        return torch.softmax(torch.stack(log_likelihood, 1) + log_pi[..., None], 1)

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
        flat, pi = server[MODEL], devices[PI]
        every = flat[:, None].expand(-1, pi.shape[1], -1).flatten(0, 1)
        return {
            "global": View({MODEL: flat, PI: pi.mean(1).log()}, self._mixture),
            "personal": View({MODEL: every, PI: pi.flatten(0, 1).log()}, self._mixture, "device"),
        }

    def _mixture(self, params: Blocks, x: Tensor) -> Tensor:
        """Log-probabilities [n, B, classes] of sum_m pi_m h_m(x); pi is the softmax of what the
        block holds, so that a gradient step leaves it a mixture."""
        log_pi = torch.log_softmax(params[PI], -1)
        scores = [
            torch.log_softmax(self.model.logits(one, x), -1) + log_pi[:, m, None, None]
            for m, one in enumerate(self._parts(params[MODEL]))
        ]
        return torch.logsumexp(torch.stack(scores), 0)

    def flops(self, samples: int) -> float:
        """Training of M models, the forward passes for the posterior of the minibatches, and those
        of the E-step on all samples of the device, counted as if it had as many as it trains on."""
        forward = 2.0 * self.model.macs * samples
        return self.components * (self.model.training_flops(samples) + 2.0 * forward)
