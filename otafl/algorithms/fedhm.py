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

from otafl.algorithms.base import Algorithm, Needs, Outcome, Views
from otafl.algorithms.deliveries import sum_per_trial
from otafl.algorithms.fedhm_layers import (
    FRAME,
    LowRankLayer,
    LowRankLayout,
    Sends,
    count_frobenius_flops,
    make_frobenius_penalty,
)
from otafl.algorithms.fedhm_updates import (
    build_update,
    compute_delivered_weights,
    count_update_flops,
    join_groups,
    sum_factors,
    sum_superposed,
)
from otafl.algorithms.local_samples import select_rows
from otafl.algorithms.parameters import draw_start, make_flat_view
from otafl.algorithms.submodel_training import (
    LevelsSettings,
    Ratio,
    broadcast_to_submodels,
    declare_ratios,
    find_present_classes,
    group_by_level,
    train_,
)
from otafl.core import contracts as c
from otafl.core.constants import get_constant
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Model, copy_params, flatten
from otafl.models.layer_steps import Unroll

SMALLEST_WEIGHT = 1e-9
"""A level whose weight in the mean is less than this share of the heaviest does not take part."""

_TINY = 1e-30


class FedHm(Algorithm):
    """Keeps server blocks: "model" [S, P], dense; "frame" [S, F], spectral factors of the layers
    that are low-rank at some level, at the largest rank. With homogeneous_mode: factor, "model"
    alone, the low-rank model. No device state."""

    needs: ClassVar[Needs] = "each"
    supports_merging: ClassVar[bool] = False

    refuses_tokens: ClassVar[str] = "trains models of several ranks"

    class Settings(LevelsSettings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedhm"] = "fedhm"
        levels: tuple[Ratio, ...] = declare_ratios(
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
        frobenius_decay: float = declare_stackable(1e-4, ge=0)
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

        def compute_score(self, ratio: float) -> float:
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
            lightest = math.exp(min(self.compute_score(ratio) for ratio in self.levels))
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
        self.layout = LowRankLayout(settings, model)
        self.submodels = self.layout.networks
        super().__init__(settings, self.layout.network, devices)

    @classmethod
    def get_needs(cls, settings: Any) -> Needs:
        products = settings.sends == "factors" and settings.homogeneous_mode == "weight"
        return "each" if products else "mean"

    def count_submodel_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        """Return the operations of training, with Frobenius decay of factors in the place of weight
        decay, and of what is sent of them beside their increments."""
        training = super().count_submodel_flops(capacity_level, workload)
        shapes = self.submodels[capacity_level].shapes
        pairs = [
            (shapes[left], shapes[right]) for left, right in self.layout.list_factor_pairs(shapes)
        ]
        decay = sum(count_frobenius_flops(*pair) for pair in pairs)
        return (
            training + workload.num_steps * decay + count_update_flops(self.layout, capacity_level)
        )

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return alpha_p of eq. (2), up to a factor, [N]; 1 for a dense model."""
        cohort = context.cohort
        scores = tuple(self.settings.compute_score(ratio) for ratio in self.settings.levels)
        return get_constant(scores, cohort.weight.dtype, cohort.weight.device).exp()[
            cohort.capacity_level
        ]

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Start at the dense model's start; with homogeneous_mode: factor, truncated."""
        params = draw_start(self.layout.dense, streams)
        if self.settings.homogeneous_mode == "factor":
            for layer in self.layout.candidates:
                rank = layer.compute_rank(self.settings.levels[0])
                both = truncation.factorise(layer.to_matrix(params[layer.weight]), rank)
                params |= dict(zip(layer.pair, both, strict=True))
        return self.layout.factorise_params({name: params[name] for name in self.model.shapes}), {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast dense layers and factors, of which a device gets its level's; with `sends:
        tangent` a dense one both."""
        of = self.layout.unflatten_params(server, self.model.shapes)
        blocks = {c.MODEL: flatten({name: of[name] for name in self.layout.downlink_shapes})}
        if self.layout.frame:
            blocks[FRAME] = server[FRAME]
        reals = [network.num_params for network in self.layout.networks]
        if self.layout.uses_projection(0):
            reals[0] += sum(a * b for a, b in self.layout.frame.values())
        return broadcast_to_submodels(blocks, cohort, reals)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        received = self.layout.unflatten_params(broadcast.tensors, self.layout.downlink_shapes)
        present = find_present_classes(context.local_data, self.settings)
        loss = torch.zeros_like(context.cohort.weight)
        groups = []
        for level, rows in enumerate(group_by_level(context.cohort, len(self.layout.networks))):
            first = select_rows(self.layout.truncate_to_level(level, received), rows)
            params = copy_params(first)
            if len(rows):
                loss[rows] = self._train_(
                    level, params, context.local_data.take(rows), context.hyper
                )
            on = self.layout.frame if self.layout.uses_projection(level) else ()
            frame = select_rows({name: received[name] for name in on}, rows)
            classes = None if present is None else present[rows]
            groups.append(build_update(self.layout, level, rows, first, params, frame, classes))
        return {}, tuple(groups) if self.layout.sends == "factors" else (join_groups(groups),), loss

    def _train_(
        self, capacity_level: int, params: c.Tensors, local_data: c.LocalData, hyper: c.Hyper
    ) -> Tensor:
        """Train a level's rows, parameters [n, *shape] in place; returns the loss [n]."""
        pairs = self.layout.list_factor_pairs(params)
        factors = [name for pair in pairs for name in pair]
        decay = hyper["frobenius_decay"][local_data.cohort.trial]
        penalty = make_frobenius_penalty(pairs, decay) if pairs else None
        network = self.layout.networks[capacity_level]
        return train_(network, params, local_data, self.settings, hyper, penalty, factors)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cut, cohort = self.layout, context.cohort.transmitters
        old, rows_per_trial = (
            cut.unflatten_params(server, self.model.shapes),
            group_by_level(cohort, len(cut.networks)),
        )
        weight = compute_delivered_weights(cut, received, cohort, rows_per_trial)
        both = zip(weight, rows_per_trial, strict=True)
        levels = torch.stack([sum_per_trial(own, cohort, rows) for own, rows in both], 1)
        server_too = torch.zeros_like(levels[:, 0])
        if self.settings.keep_server_history:
            nobody = levels[:, 0] == 0 if cut.has_dense else server_too == 0
            server_too = nobody.to(server_too)  # its weight is that of a dense model, 1
        if cut.sends == "factors":
            moved, known = sum_factors(cut, received, cohort, rows_per_trial, weight, levels, old)
        else:
            moved, known = sum_superposed(cut, received, levels.sum(1))
        for name, block in moved.items():
            whole = known[name] + c.unsqueeze_like(server_too, block)
            moved[name] = torch.where(known[name] > 0, block / whole.clamp_min(_TINY), 0.0)
        shares = torch.cat([levels, server_too[:, None]], 1)
        shares = shares / shares.sum(1, keepdim=True).clamp_min(_TINY)
        return cut.factorise_params(
            {
                name: self._recompose(cut.layers[name], old, moved, shares)
                if name in cut.layers
                else old[name] + moved[name]
                for name in self.model.shapes
            }
        )

    def _recompose(
        self, layer: LowRankLayer, old: c.Tensors, increment: c.Tensors, weight_shares: Tensor
    ) -> Tensor:
        """Return a low-rank layer's weight: B and the mean of D_p. weight_shares: [S, levels + 1]
        of the mean, the server's own last."""
        frame, matrix = layer.get_factors(old), layer.to_matrix(old[layer.weight])
        if self.layout.sends == "tangent":
            left, right = layer.pair
            both = Factors(increment[left], increment[right].mT)
            change = truncation.expand_coordinates(truncation.compute_singular_vectors(frame), both)
        else:
            change = layer.to_matrix(increment[layer.weight])
        if self.settings.base == "whole":
            return layer.from_matrix(matrix + change)
        first = int(self.layout.has_dense)  # of the low-rank levels
        ranks = get_constant(
            tuple(self.layout.ranks[layer.weight][first:]),
            weight_shares.dtype,
            weight_shares.device,
        )
        below = torch.arange(frame.left.shape[2], device=weight_shares.device) < ranks[:, None]
        kept = weight_shares[:, first:-1] @ below.to(
            weight_shares
        )  # [S, f]: who has a singular vector
        change = torch.baddbmm(change, frame.left * kept[:, None], frame.right)
        whole = weight_shares[:, :first].sum(1) + weight_shares[:, -1]
        return layer.from_matrix(change + c.unsqueeze_like(whole, matrix) * matrix)

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        of = self.layout.unflatten_params(server, self.model.shapes)
        views = {"global": make_flat_view(self.model, server[c.MODEL])}
        for level, network in enumerate(self.layout.networks):
            same = network.shapes == self.model.shapes
            flat = server[c.MODEL] if same else flatten(self.layout.truncate_to_level(level, of))
            views[f"level{level}"] = make_flat_view(network, flat)
        return views

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure truncation_gap: |W - T(W)|^2 / |W|^2 of all low-rank layers together, mean over
        the low-rank levels."""
        if not self.layout.layers:
            return {}
        of = self.layout.unflatten_params(server, self.model.shapes)
        whole, kept = torch.zeros(()), torch.zeros(())
        for name, layer in self.layout.layers.items():
            energy = truncation.singular_values(layer.get_factors(of)).square().cumsum(1)
            ranks = self.layout.ranks[name][int(self.layout.has_dense) :]
            kept = kept + energy[:, [rank - 1 for rank in ranks]].mean(1)
            whole = whole + of[name].flatten(1).square().sum(1)
        return {"truncation_gap": (1.0 - kept / whole).clamp_min(0.0)}
