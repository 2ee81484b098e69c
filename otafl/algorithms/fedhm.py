"""Train the server's model truncated to the rank that each device can afford (FedHM).

In each round the server truncates the later layers of its dense model to every level's rank
(spectral initialisation, (18)); devices train the factors with Frobenius decay; the server
multiplies them out (1) and averages weights (2). Columns of the classifier are averaged over the
devices that have samples of the class. One ratio for all is the paper's Low Rank Model.

All ways to send give, of each low-rank layer,

    W_new = B + sum_p alpha_p D_p,    D_p = L'_p R'_p - T_p(W),

T_p the truncation to p's rank, and B = sum_p alpha_p T_p(W), which makes (2), or B = W. The server
knows T_p(W) and who takes part at which level, so D_p is all that has to travel:

factors  Increments of the factors. D_p is not linear in them: the server needs each device's.
product  D_p itself, which superposes, at the price of a dense model.
tangent  Not in the paper. The server's singular vectors are a frame that factors of all ranks
         share; devices send coordinates of D_p in it (`factorised.truncation`), as many reals as
         their factors, which superpose over the air with zeros beyond a device's rank. What is lost
         is the part of D_p outside of the tangent space: of second order for a low-rank device; a
         dense one projects its change on the frame of `frame_ratio`.

References
----------
Yao et al. 2021, "FedHM: Efficient Federated Learning for Heterogeneous Models via Low-rank
    Factorization", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.arrivals import per_trial
from otafl.algorithms.base import Algorithm, Needs, Outcome, Views
from otafl.algorithms.fedhm_layers import FRAME, Cut, Layer, Sends, frobenius, frobenius_flops
from otafl.algorithms.fedhm_updates import (
    arrived,
    joined,
    summed,
    superposed,
    update,
    update_flops,
)
from otafl.algorithms.level_training import (
    LevelsSettings,
    Ratio,
    buckets,
    ratios,
    sent_to_levels,
    train_,
)
from otafl.algorithms.local_samples import some
from otafl.algorithms.parameters import flat_view, start
from otafl.core import contracts as c
from otafl.core.constants import constant
from otafl.core.rng import Streams
from otafl.core.settings import stackable
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Model, copied, flatten
from otafl.models.steps import Unroll

SMALLEST_WEIGHT = 1e-9
"""A level whose weight in the mean is less than this share of the heaviest does not take part."""

_TINY = 1e-30


class FedHm(Algorithm):
    """Keeps server blocks: "model" [S, P], dense; "frame" [S, F], spectral factors of the layers
    that are low-rank at some level, at the largest rank. With homogeneous_mode: factor, "model"
    alone, the low-rank model. No device state."""

    needs: ClassVar[Needs] = "each"
    merges: ClassVar[bool] = False

    class Settings(LevelsSettings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedhm"] = "fedhm"
        levels: tuple[Ratio, ...] = ratios(
            (1.0, 0.5, 0.25, 0.125),
            "rank of a layer over its output channels at each level, the largest first; at 1 the "
            "layer is not factorised",
        )
        dense_prefix: int | None = Field(None, ge=0)
        """so many of the first layers that could be factorised are not; the model's own number if
        not given"""
        unroll: Unroll = "vertical_first"
        """a low-rank convolution is k x 1 windows, then 1 x k (as in the paper), or the other way
        (as in its code)"""
        frobenius_decay: float = stackable(1e-4, ge=0)
        """lambda of the penalty lambda/2 |U V^T|^2 on factors, which have no weight decay; the
        paper has no value"""
        temperature: Annotated[float, Field(gt=0)] | None = None
        """tau of the weights in (2), 5 in the paper where levels change from round to round; equal
        weights if not given"""
        weight_rule: Literal["paper", "inverse"] = "paper"
        """a level of ratio g counts as exp(g / tau), or exp(-1 / (g tau)) as in the paper's code"""
        sends: Sends = "factors"
        """what devices send of low-rank layers. factors: their increments; the server needs each.
        product: the increment of the whole weight. tangent: its coordinates in the server's
        singular vectors, no more than the factors of frame_ratio"""
        base: Literal["truncated", "whole"] = "truncated"
        """what increments are added to: the mean of the models that devices started from, which
        makes (2), or the server's model, which keeps what truncation cut off"""
        frame_ratio: Ratio | None = None
        """with sends: tangent, the ratio of the singular vectors that devices of the dense level
        project on; the largest of levels below 1 if not given"""
        homogeneous_mode: Literal["weight", "factor"] = "weight"
        """with one level: averages of weights, factored again in each round, or of factors as they
        are, FedAvg on the low-rank model"""
        keep_server_history: bool = False
        """in a round without a device of the dense level the server's model takes part in its
        place"""

        @property
        def rank_ratios(self) -> tuple[float, ...]:
            """Return the levels that are factorised."""
            return tuple(ratio for ratio in self.levels if ratio < 1.0)

        def score(self, ratio: float) -> float:
            """Return the logarithm of a level's weight, up to a constant; 0 for the dense level.
            Eq. (2)."""
            if self.temperature is None:
                return 0.0
            of = ratio - 1.0 if self.weight_rule == "paper" else 1.0 - 1.0 / ratio
            return of / self.temperature

        def find_conflicts(self) -> Iterator[str]:
            if any(a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
                yield (
                    f"levels must fall, the largest first, and are {list(self.levels)}; "
                    f"{sorted(set(self.levels), reverse=True)} would do"
                )
            lightest = math.exp(min(self.score(ratio) for ratio in self.levels))
            if lightest < SMALLEST_WEIGHT:
                yield (
                    f"temperature: {self.temperature} leaves level {self.levels[-1]} a weight of "
                    f"{lightest:.0e} of a dense model's; a larger one would do"
                )
            averages_factors = self.homogeneous_mode == "factor"
            if averages_factors and (len(self.levels) > 1 or self.levels[0] == 1.0):
                yield (
                    "homogeneous_mode: factor averages factors of one rank, and levels are "
                    f"{list(self.levels)}; one ratio below 1 would do"
                )
            if averages_factors and self.keep_server_history:
                yield (
                    "keep_server_history is for a mean of weights, and homogeneous_mode: factor "
                    "has none; homogeneous_mode: weight would do"
                )
            if self.frame_ratio is not None and self.sends != "tangent":
                yield f"frame_ratio is for sends: tangent, and it is {self.sends}; leave it out"
            largest = max(self.rank_ratios, default=0.0)
            if self.frame_ratio is not None and self.frame_ratio < largest:
                yield (
                    f"frame_ratio ({self.frame_ratio}) must hold the factors of every level; "
                    f"{largest} or more would do"
                )

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.cut = Cut(settings, model)
        self.sizes = self.cut.networks
        super().__init__(settings, self.cut.network, devices)

    @classmethod
    def needs_of(cls, settings: Any) -> Needs:
        products = settings.sends == "factors" and settings.homogeneous_mode == "weight"
        return "each" if products else "mean"

    def level_flops(self, level: int, load: c.Workload) -> np.ndarray:
        """Return the operations of training, with Frobenius decay of factors in the place of weight
        decay, and of what is sent of them beside their increments."""
        training = super().level_flops(level, load)
        shapes = self.sizes[level].shapes
        pairs = [(shapes[left], shapes[right]) for left, right in self.cut.pairs(shapes)]
        decay = sum(frobenius_flops(*pair) for pair in pairs)
        return training + load.steps * decay + update_flops(self.cut, level)

    def row_weights(self, context: c.Context) -> Tensor:
        """Return alpha_p of eq. (2), up to a factor, [N]; 1 for a dense model."""
        cohort = context.cohort
        scores = tuple(self.settings.score(ratio) for ratio in self.settings.levels)
        return constant(scores, cohort.weight.dtype, cohort.weight.device).exp()[cohort.level]

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Start at the dense model's start; with homogeneous_mode: factor, truncated."""
        params = start(self.cut.dense, streams)
        if self.settings.homogeneous_mode == "factor":
            for layer in self.cut.could_be:
                rank = layer.rank(self.settings.levels[0])
                both = truncation.spectral(layer.matrix(params[layer.weight]), rank)
                params |= dict(zip(layer.pair, both, strict=True))
        return self.cut.held({name: params[name] for name in self.model.shapes}), {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast dense layers and factors, of which a device gets its level's; with `sends:
        tangent` a dense one both."""
        of = self.cut.named(server, self.model.shapes)
        blocks = {c.MODEL: flatten({name: of[name] for name in self.cut.down})}
        if self.cut.frame:
            blocks[FRAME] = server[FRAME]
        reals = [network.size for network in self.cut.networks]
        if self.cut.projects(0):
            reals[0] += sum(a * b for a, b in self.cut.frame.values())
        return sent_to_levels(blocks, cohort, reals)

    def local(self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext) -> Outcome:
        received = self.cut.named(broadcast.blocks, self.cut.down)
        present = context.work.count_classes() > 0 if self.settings.masked_loss else None
        loss = torch.zeros_like(context.cohort.weight)
        groups = []
        for level, rows in enumerate(buckets(context.cohort, len(self.cut.networks))):
            first = some(self.cut.first(level, received), rows)
            params = copied(first)
            if len(rows):
                loss[rows] = self._train_(level, params, context.work.take(rows), context.hyper)
            on = self.cut.frame if self.cut.projects(level) else ()
            frame = some({name: received[name] for name in on}, rows)
            classes = None if present is None else present[rows]
            groups.append(update(self.cut, level, rows, first, params, frame, classes))
        return {}, tuple(groups) if self.cut.sends == "factors" else (joined(groups),), loss

    def _train_(self, level: int, params: c.Tensors, work: c.LocalData, hyper: c.Hyper) -> Tensor:
        """Train a level's rows, parameters [n, *shape] in place; returns the loss [n]."""
        pairs = self.cut.pairs(params)
        factors = [name for pair in pairs for name in pair]
        decay = hyper["frobenius_decay"][work.cohort.trial]
        penalty = frobenius(pairs, decay) if pairs else None
        network = self.cut.networks[level]
        return train_(network, params, work, self.settings, hyper, penalty, factors)

    def combine(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        cut, cohort = self.cut, context.cohort.senders
        old, rows_per_trial = (
            cut.named(server, self.model.shapes),
            buckets(cohort, len(cut.networks)),
        )
        weight = arrived(cut, received, cohort, rows_per_trial)
        both = zip(weight, rows_per_trial, strict=True)
        levels = torch.stack([per_trial(own, cohort, rows) for own, rows in both], 1)
        server_too = torch.zeros_like(levels[:, 0])
        if self.settings.keep_server_history:
            nobody = levels[:, 0] == 0 if cut.has_dense else server_too == 0
            server_too = nobody.to(server_too)  # its weight is that of a dense model, 1
        if cut.sends == "factors":
            moved, known = summed(cut, received, cohort, rows_per_trial, weight, levels, old)
        else:
            moved, known = superposed(cut, received, levels.sum(1))
        for name, block in moved.items():
            whole = known[name] + c.column(server_too, block)
            moved[name] = torch.where(known[name] > 0, block / whole.clamp_min(_TINY), 0.0)
        shares = torch.cat([levels, server_too[:, None]], 1)
        shares = shares / shares.sum(1, keepdim=True).clamp_min(_TINY)
        return cut.held(
            {
                name: self._recomposed(cut.layers[name], old, moved, shares)
                if name in cut.layers
                else old[name] + moved[name]
                for name in self.model.shapes
            }
        )

    def _recomposed(self, layer: Layer, old: c.Tensors, moved: c.Tensors, shares: Tensor) -> Tensor:
        """Return a low-rank layer's weight: B and the mean of D_p. shares: [S, levels + 1] of the
        mean, the server's own last."""
        frame, matrix = layer.factors(old), layer.matrix(old[layer.weight])
        if self.cut.sends == "tangent":
            left, right = layer.pair
            both = Factors(moved[left], moved[right].mT)
            change = truncation.along(truncation.vectors(frame), both)
        else:
            change = layer.matrix(moved[layer.weight])
        if self.settings.base == "whole":
            return layer.weights(matrix + change)
        first = int(self.cut.has_dense)  # of the low-rank levels
        ranks = constant(tuple(self.cut.ranks[layer.weight][first:]), shares.dtype, shares.device)
        below = torch.arange(frame.left.shape[2], device=shares.device) < ranks[:, None]
        kept = shares[:, first:-1] @ below.to(shares)  # [S, f]: who has a singular vector
        change = torch.baddbmm(change, frame.left * kept[:, None], frame.right)
        whole = shares[:, :first].sum(1) + shares[:, -1]
        return layer.weights(change + c.column(whole, matrix) * matrix)

    def views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        of = self.cut.named(server, self.model.shapes)
        views = {"global": flat_view(self.model, server[c.MODEL])}
        for level, network in enumerate(self.cut.networks):
            same = network.shapes == self.model.shapes
            flat = server[c.MODEL] if same else flatten(self.cut.first(level, of))
            views[f"level{level}"] = flat_view(network, flat)
        return views

    def measures(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure truncation_gap: |W - T(W)|^2 / |W|^2 of all low-rank layers together, mean over
        the low-rank levels."""
        if not self.cut.layers:
            return {}
        of = self.cut.named(server, self.model.shapes)
        whole, kept = torch.zeros(()), torch.zeros(())
        for name, layer in self.cut.layers.items():
            energy = truncation.singular_values(layer.factors(of)).square().cumsum(1)
            ranks = self.cut.ranks[name][int(self.cut.has_dense) :]
            kept = kept + energy[:, [rank - 1 for rank in ranks]].mean(1)
            whole = whole + of[name].flatten(1).square().sum(1)
        return {"truncation_gap": (1.0 - kept / whole).clamp_min(0.0)}
