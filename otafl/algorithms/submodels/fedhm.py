"""The server's model, truncated to the rank that each device can afford (FedHM).

In each round the server truncates the later layers of its dense model to the rank of every capacity
level (spectral initialisation). Devices train the factors with Frobenius decay. The server
multiplies them and averages the weights. It averages columns of the classifier over the devices
that have samples of the class. With one ratio it is the paper's Low Rank Model.

There are three ways to send the change of a low-rank layer:

factors  Increments of the factors. The change is not linear in them, so the server needs each
device's update.
product  The change itself, which superposes over the air, but has the size of a dense model.
tangent  Coordinates of the change in a frame of the server's singular vectors, which factors of all
ranks share (`factorised.truncation`). They are not in the paper. They superpose over the air with
zeros beyond a device's rank, and have as many coordinates as the factors. The part of the change
outside the tangent space is lost: a second-order term for a low-rank device. A dense device
projects its change on the frame of the largest rank of the other levels.

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
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.deliveries import sum_per_trial
from otafl.algorithms.local_samples import select_rows
from otafl.algorithms.parameters import draw_start, make_flat_view
from otafl.algorithms.submodel_training import (
    LevelsSettings,
    Ratio,
    broadcast_to_submodels,
    check_descending,
    count_local_flops,
    find_present_classes,
    group_by_level,
    make_submodels,
    select_by_level,
    train_,
)
from otafl.algorithms.submodels.fedhm_layers import (
    FRAME,
    LowRankLayer,
    LowRankLayout,
    Sends,
    count_frobenius_flops,
    make_frobenius_penalty,
)
from otafl.algorithms.submodels.fedhm_updates import (
    build_update,
    compute_delivered_weights,
    count_update_flops,
    join_groups,
    sum_factors,
    sum_superposed,
)
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.core.tensors import get_constant
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Model, copy_params, flatten
from otafl.models.layer_contract import Unroll

SMALLEST_WEIGHT = 1e-9
"""Smallest weight of a level in the mean, relative to the heaviest, that a scenario may have."""

_TINY = 1e-30


class FedHm(Algorithm):
    r"""Federated learning of heterogeneous models by low-rank factorisation.

    The server's tensors are "model" [S, P], dense, and "frame" [S, F]. The frame is the spectral
    factors at the largest rank of the layers that are low-rank at some level. Devices have no
    state.

    Notes
    -----
    Device p starts a low-rank layer from T_p(W), the truncation of the server's W to its rank, and
    ends at the product L'_p R'_p, eq. (1). The server averages with the weights alpha_p, eq. (2),
    here as

    .. math::

        W_{new} = B + \sum_p \alpha_p D_p, \quad D_p = L'_p R'_p - T_p(W)

    The base B is the mean of T_p(W) under alpha_p, which makes eq. (2), or W itself. The server
    knows T_p(W), so devices send only D_p.

    The weight of a device with the ratio gamma_p is

    .. math::

        \alpha_p = \frac{\exp(\gamma_p / \tau)}{\sum_q \exp(\gamma_q / \tau)} \quad (2)

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` compares it with HeteroFL, FedRolex and Split-Mix.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "draws the network that it factorises",
        "tokens": "trains models of several ranks",
        "merging": "trains factors, whose means are not those of the models",
    }

    class Settings(LevelsSettings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedhm"] = "fedhm"
        levels: Annotated[tuple[Ratio, ...], AfterValidator(check_descending)] = Field(
            (1.0, 0.5, 0.25, 0.125), min_length=1
        )
        """ratio of a layer's rank to its output channels at each level, from the largest; at 1 the
        layer is not factorised"""
        dense_prefix: int | None = Field(None, ge=0)
        """number of the first factorisable layers that stay dense; the model's own number if not
        given"""
        unroll: Unroll = "vertical_first"
        """order of the windows of a low-rank convolution: k x 1, then 1 x k (as in the paper), or
        the reverse (as in its code)"""
        frobenius_decay: float = declare_stackable(1e-4, ge=0)
        """lambda, weight of the penalty lambda/2 |U V^T|^2 on factors, which have no weight decay;
        the paper gives no value"""
        temperature: Annotated[float, Field(gt=0)] | None = None
        """tau of the weights in (2), 5 in the paper if levels change from round to round; equal
        weights if not given"""
        weight_rule: Literal["paper", "inverse"] = "paper"
        """weight of a level of ratio g: paper, exp(g / tau); inverse, exp(-1 / (g tau)) as in the
        paper's code"""
        sends: Sends = "factors"
        """what devices send of low-rank layers: factors, their increments, of which the server
        needs each; product, the increment of the whole weight; tangent, its coordinates in the
        server's singular vectors, as many as the factors of the largest level below 1"""
        base: Literal["truncated", "whole"] = "truncated"
        """base of the increments: truncated, the mean of the models from which devices start, which
        makes (2); whole, the server's model, with the part that truncation removes"""

        @property
        def rank_ratios(self) -> tuple[float, ...]:
            """The ratios of the factorised levels."""
            return tuple(ratio for ratio in self.levels if ratio < 1.0)

        def compute_score(self, ratio: float) -> float:
            """Compute the logarithm of a level's weight in eq. (2), relative to the dense level."""
            if self.temperature is None:
                return 0.0
            of = ratio - 1.0 if self.weight_rule == "paper" else 1.0 - 1.0 / ratio
            return of / self.temperature

        def find_conflicts(self) -> Iterator[str]:
            lightest = math.exp(min(self.compute_score(ratio) for ratio in self.levels))
            if lightest < SMALLEST_WEIGHT:
                yield (
                    f"temperature: {self.temperature} gives level {self.levels[-1]} a weight of "
                    f"{lightest:.0e} relative to a dense model; use a larger temperature"
                )

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.layout = LowRankLayout(settings, model)
        super().__init__(settings, self.layout.dense, devices)
        networks = self.layout.networks
        self.levels = make_submodels(settings.levels, networks, self._count_level_flops)

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind("each" if settings.sends == "factors" else "mean")

    def _count_level_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        """Count the operations of training and of computing what is sent.

        Factors have Frobenius decay instead of weight decay.
        """
        network = self.layout.networks[capacity_level]
        training, shapes = count_local_flops(network, self.settings, workload), network.shapes
        decay = sum(
            count_frobenius_flops(shapes[left], shapes[right])
            for left, right in self.layout.list_factor_pairs(shapes)
        )
        return (
            training + workload.num_steps * decay + count_update_flops(self.layout, capacity_level)
        )

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return alpha_p of eq. (2) up to a factor, [N], with 1 for a dense model."""
        scores = [self.settings.compute_score(ratio) for ratio in self.settings.levels]
        return select_by_level(scores, context.cohort).exp()

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the dense model's start, with its spectral factors."""
        return self.layout.factorise_params(draw_start(self.model, streams)), {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast dense layers and factors, of which a device receives those of its level.

        With `sends: tangent` a dense device receives both.
        """
        of = self.layout.unflatten_params(server, self.model.shapes)
        blocks = {c.MODEL: flatten({name: of[name] for name in self.layout.downlink_shapes})}
        if self.layout.frame:
            blocks[FRAME] = server[FRAME]
        coordinates = [network.num_params for network in self.layout.networks]
        if self.layout.uses_projection(0):
            coordinates[0] += sum(a * b for a, b in self.layout.frame.values())
        return broadcast_to_submodels(blocks, cohort, coordinates)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        cut, hyper = self.layout, context.hyper
        received = cut.unflatten_params(broadcast.tensors, cut.downlink_shapes)
        present = find_present_classes(context.local_data, self.settings)
        loss = torch.zeros_like(context.cohort.weight)
        groups = []
        for level, rows in enumerate(group_by_level(context.cohort, len(cut.networks))):
            first = select_rows(cut.truncate_to_level(level, received), rows)
            params, network = copy_params(first), cut.networks[level]
            if len(rows):
                work, pairs = context.local_data.take(rows), cut.list_factor_pairs(params)
                decay = hyper["frobenius_decay"][work.cohort.trial]
                penalty = make_frobenius_penalty(pairs, decay) if pairs else None
                factors = [name for pair in pairs for name in pair]
                loss[rows] = train_(network, params, work, self.settings, hyper, penalty, factors)
            on = cut.frame if cut.uses_projection(level) else ()
            frame = select_rows({name: received[name] for name in on}, rows)
            classes = None if present is None else present[rows]
            groups.append(build_update(cut, level, rows, first, params, frame, classes))
        return {}, tuple(groups) if cut.sends == "factors" else (join_groups(groups),), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cut, cohort = self.layout, context.cohort.transmitters
        old = cut.unflatten_params(server, self.model.shapes)
        rows_per_trial = group_by_level(cohort, len(cut.networks))
        weight = compute_delivered_weights(cut, received, cohort, rows_per_trial)
        both = zip(weight, rows_per_trial, strict=True)
        levels = torch.stack([sum_per_trial(own, cohort, rows) for own, rows in both], 1)
        if cut.sends == "factors":
            moved, known = sum_factors(cut, received, cohort, rows_per_trial, weight, levels, old)
        else:
            moved, known = sum_superposed(cut, received, levels.sum(1))
        for name, block in moved.items():
            moved[name] = torch.where(known[name] > 0, block / known[name].clamp_min(_TINY), 0.0)
        shares = levels / levels.sum(1, keepdim=True).clamp_min(_TINY)
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
        """Compute a low-rank layer's weight, B plus the mean of D_p.

        weight_shares: shares [S, levels] in the mean.
        """
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
        # [S, f]: share of the devices with each singular vector
        kept = weight_shares[:, first:] @ below.to(weight_shares)
        change = torch.baddbmm(change, frame.left * kept[:, None], frame.right)
        whole = weight_shares[:, :first].sum(1)
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
        """Measure "truncation_gap" [S], |W - T(W)|^2 / |W|^2 averaged over the low-rank levels.

        All low-rank layers count together.
        """
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
