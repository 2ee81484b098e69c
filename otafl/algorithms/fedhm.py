"""FedHM: devices train the server's model at the rank that they can afford.

D. Yao et al., "FedHM: Efficient Federated Learning for Heterogeneous Models via Low-rank
Factorization", Algorithm 1. In each round the server truncates the later layers of its dense model
to every level's rank (spectral initialisation, (18)); devices train the factors with Frobenius
decay; the server multiplies them out (1) and averages weights (2). Columns of the classifier are
averaged over the devices that have samples of the class.

All ways to send give, of each low-rank layer,

    W_new = B + sum_p alpha_p D_p,    D_p = L'_p R'_p - T_p(W),

T_p the truncation to p's rank, and B = sum_p alpha_p T_p(W), which makes (2), or B = W. The server
knows T_p(W) and who takes part at which level, so D_p is all that has to travel:

factors  Increments of the factors. D_p is not linear in them: the server needs each device's.
product  D_p itself, which superposes, at the price of a dense model.
tangent  Not in the paper. The server's singular vectors are a frame that factors of all ranks
         share; devices send coordinates of D_p in it (`factorised.truncation`), as many reals as
         their factors, which superpose with zeros beyond a device's rank. What is lost is the part
         of D_p outside of the tangent space: of second order for a low-rank device; a dense one
         projects its change on the frame of `frame_ratio`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.config_fedhm import FedHmConfig
from otafl.algorithms.fedhm_layers import (
    Layer,
    dense_network,
    frobenius,
    joined,
    low_rank_layers,
    mask_of,
    means_of,
    rows_of_blocks,
)
from otafl.algorithms.level_training import buckets, classifier_of, train_
from otafl.algorithms.parameters import MODEL, column, copied, flat_view
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Level,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Model, Shapes, flatten, unflatten

FRAME = "frame"
_TINY = 1e-30


class FedHm:
    """Server blocks: "model" [S, P], dense; "frame" [S, F], spectral factors of the layers that are
    low-rank at some level, at the largest rank. With homogeneous_mode: factor, "model" alone, the
    low-rank model."""

    def __init__(self, config: FedHmConfig, model: Model, devices: int) -> None:
        self.config = config
        self._dense = dense_network(config, model)
        self._could_be = low_rank_layers(config, model, self._dense)
        ranks = [
            {layer.name: layer.rank(ratio) for layer in self._could_be} if ratio < 1.0 else {}
            for ratio in config.levels
        ]
        self.networks = [self._dense.with_ranks(of) for of in ranks]
        self.network, self._sends = self._dense, config.sends
        if config.homogeneous_mode == "factor":
            self.network, self._sends = self.networks[0], "product"
        self._layers: dict[str, Layer] = {}
        if self.network is self._dense and config.rank_ratios:
            self._layers = {layer.weight: layer for layer in self._could_be}
        self._has_dense = config.levels[0] == 1.0
        self._frame: Shapes = {}
        widest = config.frame_ratio or max(config.rank_ratios, default=1.0)
        for layer in self._layers.values():
            (left, right), rank = layer.pair, layer.rank(widest)
            self._frame |= {left: (layer.sides[0], rank), right: (rank, layer.sides[1])}
        self._ranks = {
            layer.weight: [of.get(layer.name, layer.rank(widest)) for of in ranks]
            for layer in self._layers.values()
        }
        whole = {} if self._has_dense else self._layers
        self._down = {n: s for n, s in self.network.shapes.items() if n not in whole}
        self._up = self._sent_shapes()
        self._classifier = classifier_of(self._dense)

    def _sent_shapes(self) -> Shapes:
        """Of what all devices send together; of coordinates the second is transposed."""
        if self._sends != "tangent":
            return self.network.shapes
        shapes: Shapes = {}
        for name, shape in self.network.shapes.items():
            if name not in self._layers:
                shapes[name] = shape
                continue
            left, right = self._layers[name].pair
            rank, columns = self._frame[right]
            shapes |= {left: self._frame[left], right: (columns, rank)}
        return shapes

    def levels(self) -> tuple[Level, ...]:
        return tuple(
            Level(ratio, one.size, one.macs, one.training_flops, one.kept_reals)
            for ratio, one in zip(self.config.levels, self.networks, strict=True)
        )

    def flops(self, samples: int) -> float:
        return self.networks[0].training_flops(samples)

    def row_weights(self, cohort: Cohort) -> Tensor:
        """[N]: alpha_p of eq. (2), up to a factor; 1 for a dense model."""
        scores = cohort.weight.new_tensor([self.config.score(r) for r in self.config.levels])
        return scores.exp()[cohort.level]

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """The dense model's start; of homogeneous_mode: factor truncated."""
        params = start(self._dense, streams)
        if self.network is not self._dense:
            for layer in self._could_be:
                rank = layer.rank(self.config.levels[0])
                both = truncation.spectral(layer.matrix(params[layer.weight]), rank)
                params |= dict(zip(layer.pair, both, strict=True))
        return self._state({name: params[name] for name in self.network.shapes}), {}

    def _state(self, params: Blocks) -> Blocks:
        """The server's blocks with these parameters. One SVD a layer and round. Eq. (18)."""
        if not self._layers:
            return {MODEL: flatten(params)}
        frame: Blocks = {}
        for layer in self._layers.values():
            matrix, rank = layer.matrix(params[layer.weight]), self._frame[layer.pair[0]][1]
            frame |= dict(zip(layer.pair, truncation.spectral(matrix, rank), strict=True))
        return {MODEL: flatten(params), FRAME: flatten(frame)}

    def _of(self, server: Blocks) -> Blocks:
        """The server's parameters and factors."""
        out = unflatten(server[MODEL], self.network.shapes)
        return out | (unflatten(server[FRAME], self._frame) if self._frame else {})

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        """Dense layers and factors, of which a device gets its level's; with `sends: tangent` a
        dense one both."""
        of = self._of(server)
        blocks = {MODEL: flatten({name: of[name] for name in self._down})}
        if self._frame:
            blocks[FRAME] = server[FRAME]
        reals = [network.size for network in self.networks]
        if self._sends == "tangent" and self._has_dense:
            reals[0] += sum(a * b for a, b in self._frame.values())
        return Broadcast(blocks, reals_of=cohort.level.new_tensor(reals)[cohort.level])

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        received = unflatten(broadcast.blocks[MODEL], self._down)
        if self._frame:
            received |= unflatten(broadcast.blocks[FRAME], self._frame)
        present = work.class_counts() > 0 if self.config.masked_loss else None
        loss = torch.zeros_like(cohort.weight)
        groups = []
        for level, rows in enumerate(buckets(cohort, len(self.networks))):
            first = rows_of_blocks(self._first(level, received), rows)
            params = copied(first)
            if len(rows):
                loss[rows] = self._train_(level, params, work.take(rows), hyper)
            if self._sends == "factors":
                sent = flatten({name: params[name] - block for name, block in first.items()})
                shapes, ranks = self.networks[level].shapes, {}
            else:
                projects = self._sends == "tangent" and self._has_dense and level == 0
                frame = {name: received[name] for name in self._frame if projects}
                sent = flatten(self._sent(first, params, rows_of_blocks(frame, rows)))
                shapes, ranks = self._up, self._below(level, rows)
            some = None if present is None else present[rows]
            groups.append(Group({MODEL: sent}, rows, self._mask(shapes, some, ranks, rows)))
        return {}, tuple(groups) if self._sends == "factors" else (joined(groups),), loss

    def _first(self, level: int, blocks: Blocks) -> Blocks:
        """A level's parameters before training: of factors the first of its rank."""
        return {
            name: blocks[name][:, : shape[0], : shape[1]] if name in self._frame else blocks[name]
            for name, shape in self.networks[level].shapes.items()
        }

    def _train_(self, level: int, params: Blocks, work: Work, hyper: Hyper) -> Tensor:
        pairs = [layer.pair for layer in self._could_be if layer.pair[0] in params]
        factors = [name for pair in pairs for name in pair]
        decay = hyper["frobenius_decay"][work.cohort.trial]
        penalty = frobenius(pairs, decay) if pairs else None
        return train_(self.networks[level], params, work, self.config, hyper, penalty, factors)

    def _sent(self, first: Blocks, params: Blocks, frame: Blocks) -> Blocks:
        """Increments of dense parameters; of low-rank layers D_p, or its coordinates."""
        out: Blocks = {}
        for name in self.network.shapes:
            layer = self._layers.get(name)
            if layer is not None and self._sends == "tangent":
                both = self._coordinates(layer, first, params, frame)
                out |= dict(zip(layer.pair, both, strict=True))
            elif layer is None or name in params:
                out[name] = params[name] - first[name]
            else:
                old, new = layer.factors(first), layer.factors(params)
                out[name] = layer.weights(new.product - old.product)
        return out

    def _coordinates(self, layer: Layer, first: Blocks, params: Blocks, frame: Blocks) -> Factors:
        """C [n, a, f] and E^T [n, b, f] of D_p, zeros beyond a device's rank."""
        if layer.weight in params:
            vectors = truncation.vectors(layer.factors(frame))
            change = layer.matrix(params[layer.weight] - first[layer.weight])
            c, e = truncation.coordinates_of_matrix(vectors, change)
        else:
            old, new = layer.factors(first), layer.factors(params)
            c, e = truncation.coordinates_of_factors(truncation.vectors(old), old, new)
        pad = (0, self._frame[layer.pair[0]][1] - c.shape[2])
        return Factors(functional.pad(c, pad), functional.pad(e.mT, pad))

    def _below(self, level: int, rows: Tensor) -> Blocks:
        """Of coordinates, those [n, f] that rows of a level have."""
        if self._sends != "tangent":
            return {}
        out: Blocks = {}
        for name, layer in self._layers.items():
            all_of = torch.arange(self._frame[layer.pair[0]][1], device=rows.device)
            some = (all_of < self._ranks[name][level]).expand(len(rows), -1)
            out |= dict.fromkeys(layer.pair, some)
        return out

    def _mask(
        self, shapes: Shapes, present: Tensor | None, ranks: Blocks, rows: Tensor
    ) -> Blocks | None:
        """[n, P]: of the classifier the classes that a device has."""
        if present is None and not ranks:
            return None
        of_classes = {} if present is None else dict.fromkeys(self._classifier, present)
        return {MODEL: mask_of(shapes, ranks | of_classes, rows)}

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        cohort, old = cohort.senders, self._of(server)
        rows_of = buckets(cohort, len(self.networks))
        weight = self._arrived(received, cohort, rows_of)
        levels = torch.stack(
            [
                own.new_zeros(cohort.trials).index_add_(0, cohort.trial[rows], own)
                for own, rows in zip(weight, rows_of, strict=True)
            ],
            1,
        )
        server_too = torch.zeros_like(levels[:, 0])
        if self.config.keep_server_history:
            nobody = levels[:, 0] == 0 if self._has_dense else server_too == 0
            server_too = nobody.to(server_too)  # its weight is that of a dense model, 1
        if self._sends == "factors":
            moved, known = self._summed(received, cohort, rows_of, weight, levels, old)
        else:
            moved, known = self._superposed(received, levels.sum(1))
        for name, block in moved.items():
            whole = known[name] + column(server_too, block)
            moved[name] = torch.where(known[name] > 0, block / whole.clamp_min(_TINY), 0.0)
        shares = torch.cat([levels, server_too[:, None]], 1)
        shares = shares / shares.sum(1, keepdim=True).clamp_min(_TINY)
        new = {
            name: self._recomposed(self._layers[name], old, moved, shares)
            if name in self._layers
            else old[name] + moved[name]
            for name in self.network.shapes
        }
        return self._state(new)

    def _arrived(
        self, received: Received, cohort: Cohort, rows_of: Sequence[Tensor]
    ) -> list[Tensor]:
        """Of each level the rows' weights [n], 0 of those that are known to be lost."""
        out = []
        for level, rows in enumerate(rows_of):
            own = cohort.weight[rows]
            if received.came is not None:
                factors = self._sends == "factors"
                came = received.came[level if factors else 0]
                if came is not None:
                    own = own * (came if factors else came[rows])
            out.append(own)
        return out

    def _superposed(self, received: Received, total: Tensor) -> tuple[Blocks, Blocks]:
        """sum_p w_p x_p of all that came, and the weight of the devices that count in it: of
        coordinates also those of a smaller rank, as all have the first one."""
        mean, count = means_of(received, 0, self._up)
        moved = {n: block * count[n] * column(total, block) for n, block in mean.items()}
        known = {n: c[..., :1] if n in self._frame else c for n, c in count.items()}
        return moved, {n: c * column(total, c) for n, c in known.items()}

    def _summed(
        self,
        received: Received,
        cohort: Cohort,
        rows_of: Sequence[Tensor],
        weight: Sequence[Tensor],
        levels: Tensor,
        old: Blocks,
    ) -> tuple[Blocks, Blocks]:
        """As `_superposed`, with factors multiplied out, eq. (1)."""
        assert received.each is not None
        moved = {name: torch.zeros_like(old[name]) for name in self.network.shapes}
        known = {name: torch.zeros_like(old[name]) for name in self.network.shapes}
        for level, (rows, own) in enumerate(zip(rows_of, weight, strict=True)):
            shapes, total = self.networks[level].shapes, levels[:, level]
            mean, count = means_of(received, level, shapes)
            for name in self.network.shapes:
                if name in shapes:
                    known[name] += count[name] * column(total, moved[name])
                    moved[name] += mean[name] * count[name] * column(total, moved[name])
            low_rank = [layer for name, layer in self._layers.items() if name not in shapes]
            if not (low_rank and len(rows)):
                continue
            first = self._first(level, old)
            trial, each = cohort.trial[rows], unflatten(received.each[level][MODEL], shapes)
            for layer in low_rank:
                at, by = layer.factors(first), layer.factors(each)
                new = Factors(at.left[trial] + by.left, at.right[trial] + by.right)
                change = truncation.sum_of_products(new, own, trial, cohort.trials)
                change -= at.product * column(total, change)
                moved[layer.weight] += layer.weights(change)
                known[layer.weight] += column(total, moved[layer.weight])
        return moved, known

    def _recomposed(self, layer: Layer, old: Blocks, moved: Blocks, shares: Tensor) -> Tensor:
        """A low-rank layer's weight: B and the mean of D_p. shares: [S, levels + 1] of the mean,
        the server's own last."""
        frame, matrix = layer.factors(old), layer.matrix(old[layer.weight])
        if self._sends == "tangent":
            left, right = layer.pair
            both = Factors(moved[left], moved[right].mT)
            change = truncation.along(truncation.vectors(frame), both)
        else:
            change = layer.matrix(moved[layer.weight])
        if self.config.base == "whole":
            return layer.weights(matrix + change)
        first = int(self._has_dense)  # of the low-rank levels
        ranks = shares.new_tensor(self._ranks[layer.weight][first:])
        below = torch.arange(frame.left.shape[2], device=shares.device) < ranks[:, None]
        kept = shares[:, first:-1] @ below.to(shares)  # [S, f]: who has a singular vector
        change = torch.baddbmm(change, frame.left * kept[:, None], frame.right)
        whole = shares[:, :first].sum(1) + shares[:, -1]
        return layer.weights(change + column(whole, matrix) * matrix)

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        of = self._of(server)
        views = {"global": flat_view(self.network, server[MODEL])}
        for level, network in enumerate(self.networks):
            same = network.shapes == self.network.shapes
            flat = server[MODEL] if same else flatten(self._first(level, of))
            views[f"level{level}"] = flat_view(network, flat)
        return views

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        """truncation_gap: |W - T(W)|^2 / |W|^2 of all low-rank layers together, mean over the
        low-rank levels."""
        if not self._layers:
            return {}
        of = self._of(server)
        whole, kept = torch.zeros(()), torch.zeros(())
        for name, layer in self._layers.items():
            energy = truncation.singular_values(layer.factors(of)).square().cumsum(1)
            ranks = self._ranks[name][int(self._has_dense) :]
            kept = kept + energy[:, [rank - 1 for rank in ranks]].mean(1)
            whole = whole + of[name].flatten(1).square().sum(1)
        return {"truncation_gap": (1.0 - kept / whole).clamp_min(0.0)}
