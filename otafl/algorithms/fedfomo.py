"""FedFomo: personalised federated learning with first-order model optimisation.

Zhang, Sapra, Fidler, Yeung, Alvarez 2021. The server forwards M models to each device, which
compares them with a baseline theta_i on validation samples of its own and moves to a mixture,

    g_n = (L_i(theta_i) - L_i(theta_n)) / |theta_n - theta_i|,
    theta_i <- theta_i + sum_n w_n (theta_n - theta_i),   w_n = max(g_n, 0) / sum_m max(g_m, 0),

before it trains and sends its model. The baseline is the device's model before its last local
training, and the model that came of it is one of the theta_n, so that training is kept as far as it
helped; or, with `baseline: current`, that trained model itself. Where no model is better, the
baseline stays.

What the server forwards follows the affinity p_i <- p_i + g that the device reports: the models of
the largest p_ij, and in the place of each of the M, with a chance that falls from round to round, a
random one of the others. A device is forwarded the models of the same M devices until its report
has come. Reports are part of the payload.

Validation samples are evenly spaced over a device's samples, floor(share n_i) of them (a device of
very few has none and trains alone), and are in no training minibatch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.config_exchange import FedFomoConfig
from otafl.algorithms.device_tables import arrived, rewritten
from otafl.algorithms.local_samples import add_, held, pieces
from otafl.algorithms.parameters import (
    MODEL,
    copied,
    device_view,
    named,
    own,
    shared_start,
)
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
from otafl.core.rng import Streams
from otafl.data.work import choose
from otafl.models.base import Model, cross_entropy, flatten, unflatten

GAIN = "gain"
_STEP_BITS = 32  # a stream's round is (round << 32) + step


class FedFomo:
    """Server blocks: "models" [S, K, P], of each device the last that came (its start, if none);
    "affinity" [S, K, K]; "offer" [S, K, M] int64, whose models each device is forwarded next.
    Device blocks "personal.<name>", the trained model, and "base.<name>", the one before training
    (none with `baseline: current`)."""

    def __init__(self, config: FedFomoConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.devices = devices
        self.offers = min(config.models, devices - 1)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        affinity = flat.new_zeros(len(flat), self.devices, self.devices)
        server = {
            "models": flat[:, None].repeat(1, self.devices, 1),
            "affinity": affinity,
            "offer": self.offer(affinity, 0, hyper, streams),
        }
        state = shared_start("personal", flat, self.model)
        if self.config.baseline == "last":
            state |= shared_start("base", flat, self.model)
        return server, state

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        whose = server["offer"].flatten(0, 1)[cohort.cell]
        rows = cohort.trial[:, None] * self.devices + whose
        return Broadcast({"models": server["models"].flatten(0, 1)[rows]}, per_device=True)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        data = HeldOut(work.full(), self.config.validation, work.batch(0).y.shape[1])
        trained = own(devices, "personal")
        params, gain = self.mix(broadcast.blocks["models"], trained, devices, data.validation)
        state = {}
        if self.config.baseline == "last":
            state = named("base", copied(params))
        rate = hyper["learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            tick = (work.round << _STEP_BITS) + step
            uniform = streams.device_uniform(
                "fedfomo/minibatch", tick, cohort.trial, cohort.device, (data.batch_size,)
            )
            loss += self.model.sgd_(params, data.minibatch(uniform), rate)
        sent = torch.cat([block.flatten(1) for block in params.values()], 1)
        payload = [Group({MODEL: sent})]
        if self.offers:
            payload.append(Group({GAIN: gain}))
        return state | named("personal", params), tuple(payload), loss / work.steps

    def mix(
        self, offered: Tensor, trained: Blocks, devices: Blocks, validation: Batch
    ) -> tuple[Blocks, Tensor]:
        """theta_i after the exchange, in memory of its own, and g [n, M] of the offered models [n,
        M, P]."""
        base = own(devices, "base") or trained
        flat = flatten(base)
        base_loss = self._losses(flat[:, None], validation)
        gain = flat.new_zeros(len(flat), 0)
        if self.offers:
            gain = self._gain(offered, flat, base_loss, validation)
        own_gain = torch.zeros_like(flat[:, 0])
        own_flat = flat
        if base is not trained:
            own_flat = flatten(trained)
            own_gain = self._gain(own_flat[:, None], flat, base_loss, validation)[:, 0]
        positive, own_positive = gain.clamp_min(0.0), own_gain.clamp_min(0.0)
        total = positive.sum(1) + own_positive
        scale = torch.where(total > 0, 1.0 / total, 0.0)[:, None]
        weights, own_weight = positive * scale, own_positive[:, None] * scale
        rest = (total == 0).to(flat.dtype)[:, None]  # the baseline stays
        mixed = torch.addcmul(rest * flat, own_weight, own_flat)
        if self.offers:
            mixed += torch.bmm(weights[:, None], offered).squeeze(1)
        return copied(unflatten(mixed, self.model.shapes)), gain

    def _gain(self, models: Tensor, base: Tensor, base_loss: Tensor, validation: Batch) -> Tensor:
        """g [n, M] of models [n, M, P] over the baseline [n, P] of loss [n, 1], 0 for the baseline
        itself."""
        lower = base_loss - self._losses(models, validation)
        apart = torch.linalg.vector_norm(models - base[:, None], dim=2)
        return torch.where(apart > 0, lower / apart, 0.0)

    def _losses(self, models: Tensor, validation: Batch) -> Tensor:
        """[n, M] of models [n, M, P]."""
        count = models.shape[1]
        out = torch.zeros_like(models[:, :, 0])
        for rows, piece in pieces(validation):
            params = unflatten(
                (models if rows is None else models[rows]).flatten(0, 1), self.model.shapes
            )
            x, y = (part.repeat_interleave(count, 0) for part in (piece.x, piece.y))
            assert piece.weight is not None
            weight = piece.weight.repeat_interleave(count, 0)
            scores = self.model.training_logits(params, x, weight)
            loss = cross_entropy(scores, Batch(x, y, weight))
            add_(out, rows, loss.unflatten(0, (-1, count)))
        return out

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        each, came = arrived(received, 0)
        new = dict(server) | {"models": rewritten(server["models"], each[MODEL], came, cohort)}
        if not self.offers:
            return new
        each, came = arrived(received, 1)
        cell = cohort.cell
        whose = server["offer"].flatten(0, 1)[cell]
        known = server["affinity"].flatten(0, 1)[cell]
        p = known.scatter_add(1, whose, each[GAIN])  # p_i <- p_i + g
        new["affinity"] = rewritten(server["affinity"], p, came, cohort)
        offer = self.offer(new["affinity"], round + 1, hyper, streams)
        new["offer"] = rewritten(server["offer"], offer.flatten(0, 1)[cell], came, cohort)
        return new

    def offer(self, affinity: Tensor, round: int, hyper: Hyper, streams: Streams) -> Tensor:
        """[S, K, M] int64: the devices whose models each is forwarded in a round, all different and
        never its own; ties of the affinity [S, K, K] are broken at random."""
        devices, wanted = self.devices, self.offers
        if not wanted:
            return torch.zeros_like(affinity[:, :, :0], dtype=torch.int64)
        draw = streams.uniform("fedfomo/explore", round, (devices, devices + wanted))
        chance, explored = draw.split([devices, wanted], 2)
        epsilon = (hyper["explore"] - hyper["explore_decay"] * round)[:, None, None]
        liked = (explored >= epsilon).sum(2, keepdim=True)  # how many for their affinity
        itself = torch.eye(devices, dtype=torch.bool, device=affinity.device)
        shuffled = chance.argsort(2)
        preference = affinity.masked_fill(itself, -torch.inf).gather(2, shuffled)
        order = preference.argsort(dim=2, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank.scatter_(
            2, shuffled.gather(2, order), torch.arange(devices, device=rank.device).expand_as(rank)
        )
        score = torch.where(rank < liked, 1.0 + chance, chance).masked_fill(itself, -1.0)
        return score.topk(wanted, 2).indices

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"personal": device_view(self.model, devices, "personal")}

    def flops(self, samples: int) -> float:
        """Of training alone: how many validation samples a device has is not known here."""
        return self.model.training_flops(samples)


class HeldOut:
    """A device's samples cut into training and validation. full: all of them, [n, n_max], padded.

    validation: Batch of the validation samples, weights summing to one (to zero where a device has
    none). A minibatch is a uniform draw without replacement of batch_size training samples, or all
    of them, padded with weight 0, where a device has fewer.
    """

    def __init__(self, full: Batch, share: float, batch_size: int) -> None:
        self.batch_size = batch_size
        longest, place = full.y.shape[1], full.y.device
        ends = np.floor(np.arange(longest + 1) * share)
        out = np.diff(ends) > 0  # spread evenly, whatever order the samples are in
        self._training = torch.from_numpy(np.flatnonzero(~out)).to(place)
        validation = torch.from_numpy(np.flatnonzero(out)).to(place)
        some = held(full)
        kept = some[:, validation]
        self.validation = Batch(
            full.x[:, validation],
            full.y[:, validation],
            kept / kept.sum(1, keepdim=True).clamp_min(1.0),
        )
        self._full = full
        self._count = some[:, self._training].sum(1).long()

    def minibatch(self, uniform: Tensor) -> Batch:
        """From numbers [n, B] uniform in (0, 1)."""
        size, count = self.batch_size, self._count[:, None]
        in_turn = torch.arange(size, device=count.device)
        pick = torch.where(
            count < size,
            torch.where(in_turn < count, in_turn, 0),
            choose(uniform, self._count.clamp_min(size)),
        )
        at = self._training[pick]
        row = torch.arange(len(at), device=at.device)[:, None]
        several = count.clamp(max=size)
        weight = (in_turn < several).to(self._full.x.dtype) / several
        return Batch(self._full.x[row, at], self._full.y[row, at], weight)
