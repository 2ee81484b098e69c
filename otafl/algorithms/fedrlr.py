"""FedRLR: Riemannian low-rank model compression with random linear coding.

Y. Xue and V. Lau, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
Aggregation", Algorithm 1. Each device keeps its own weights of rank R, trains them by Riemannian
SGD with a pull towards the broadcast ones, and sends two thin factors a layer, coded by a random
sign matrix; the receiver multiplies the two superposed sums. Factored throughout: a round makes no
dense M x N weight, gradient or SVD.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config import FedRLRConfig
from otafl.contracts import (
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
from otafl.errors import UserError
from otafl.factorised.lowrank import (
    LowRank,
    LowRankMap,
    Tangent,
    compress,
    project,
    reorthonormalise,
    retract,
    thin_product,
    truncate,
)
from otafl.models.base import LayeredModel, Model, Pair, Shapes, flatten, unflatten
from otafl.rng import Streams

REORTHONORMALISE_EVERY = 64
"""Local steps between corrections of the rounding drift of U and V."""


class FedRLR:
    """Blocks "u<l>" [..., M, R], "s<l>" [..., R], "v<l>" [..., N, R], "b<l>" [..., N] of each
    layer l: at the server (Theta_0) with leading S, at the devices (Theta_k) with S, K."""

    def __init__(self, config: FedRLRConfig, model: Model, devices: int) -> None:
        if not isinstance(model, LayeredModel):
            raise UserError(
                "algorithm.name: 'fedrlr' factors the layers of a model, and a torch.nn.Module "
                "does not show them; return an otafl.models.LayeredModel, or use fedavg"
            )
        self.config = config
        self.model = model
        ranks = config.rank
        if isinstance(ranks, int):
            ranks = tuple(ranks for _ in model.layers)
        if len(ranks) != len(model.layers):
            raise UserError(
                f"algorithm.rank: {len(ranks)} ranks for a model of {len(model.layers)} layers; "
                "one for each, or a single number"
            )
        self.ranks = tuple(
            min(rank, layer.inputs, layer.outputs)
            for rank, layer in zip(ranks, model.layers, strict=True)
        )
        self._shapes: Shapes = {}
        for i, (layer, rank) in enumerate(zip(model.layers, self.ranks, strict=True)):
            self._shapes |= {f"u{i}": (rank, layer.inputs), f"s{i}": (rank,)}
            self._shapes |= {f"v{i}": (rank, layer.outputs), f"b{i}": (layer.outputs,)}
        inv_k_penalty = config.inv_k_penalty
        if inv_k_penalty is None:
            inv_k_penalty = config.inv_k_gradient
        self._kappa_gradient = 1.0 / devices if config.inv_k_gradient else 1.0
        self._kappa_penalty = 1.0 / devices if inv_k_penalty else 1.0

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """Theta_k = Theta_0: the model's start, truncated to rank R. The devices' copies are
        spread by the engine's `expand`, in memory of their own."""
        start = self.model.init(lambda name, shape: streams.uniform(f"init/{name}", 0, shape))
        server: Blocks = {}
        for index, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            weight = start[layer.weight]
            if not weight.any():  # zero has no rank R: start from a standard layer instead
                uniform = streams.uniform(f"init/{layer.weight}", 0, weight.shape[1:])
                weight = (2.0 * uniform - 1.0) / layer.inputs**0.5
            point = truncate(weight, rank, self.config.init_rescale)
            server |= _point_blocks(index, point)
            server[f"b{index}"] = start[layer.bias]
        return server, {name: block[:, None] for name, block in server.items()}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        """All blocks side by side, thin ones as they lie: one gather for the rows of a chunk."""
        return Broadcast({"model": flatten({name: _as_lies(b) for name, b in server.items()})})

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        layers = range(len(self.model.layers))
        eta, mu = (value[cohort.trial] for value in self._schedule(hyper, work.round))
        own = [_point(devices, i) for i in layers]
        flat = unflatten(broadcast.blocks["model"], self._shapes)
        global_model = {name: _as_lies(block) for name, block in flat.items()}
        anchor = [_point(global_model, i) for i in layers]
        bias = [devices[f"b{i}"] for i in layers]
        bias0 = [global_model[f"b{i}"] for i in layers]
        of_loss = (-self._kappa_gradient * eta)[:, None, None]
        of_penalty = (-self._kappa_penalty * eta * mu)[:, None, None]
        loss = torch.zeros_like(eta)
        for step in range(work.steps):
            maps = [LowRankMap(point) for point in own]
            params = {
                name: value
                for layer, weight, b in zip(self.model.layers, maps, bias, strict=True)
                for name, value in ((layer.weight, weight), (layer.bias, b))
            }
            batch_loss, pairs = self.model.pairs(params, work.batch(step))
            loss += batch_loss
            # eq. (49): Delta = kappa (G + mu (Theta_k - Theta_0)), here times -eta
            tangents = [
                _tangent(own[i], anchor[i], maps[i], pairs[i], of_loss, of_penalty) for i in layers
            ]
            for i in layers:
                pull = (bias[i] - bias0[i]).mul_(of_penalty[:, 0])
                bias[i] = pull.addcmul_(pairs[i].g.sum(1), of_loss[:, 0]).add_(bias[i])
            own = retract(own, tangents)  # eqs. (17)-(19)
            if (work.round * work.steps + step + 1) % REORTHONORMALISE_EVERY == 0:
                own = [reorthonormalise(point) for point in own]
        state: Blocks = {}
        for i in layers:
            state |= _point_blocks(i, own[i])
            state[f"b{i}"] = bias[i]
        return state, self._encode(own, bias, cohort, work.round, streams), loss / work.steps

    def _schedule(self, hyper: Hyper, round: int) -> tuple[Tensor, Tensor]:
        """eta [S] and mu [S] of a round."""
        eta = hyper["q"] / (hyper["nu"] + round)
        mu = hyper["mu"] if self.config.mu_schedule == "constant" else hyper["c1"] / eta
        return eta, mu

    def _encode(
        self,
        points: list[LowRank],
        bias: list[Tensor],
        cohort: Cohort,
        round: int,
        streams: Streams,
    ) -> Payload:
        """eqs. (21), (25), (26): U sqrt(Sigma) F and V sqrt(Sigma) F, F of random signs / sqrt(R),
        times sqrt(w_k): the product of the two sums is then the mean of the products. Both are sent
        transposed, "u<l>" [n, R, M] and "v<l>" [n, R, N]."""
        signs = streams.device_uniform(
            "rlc", round, cohort.trial, cohort.device, (sum(r * r for r in self.ranks),)
        )
        signs = (signs < 0.5).to(bias[0].dtype).mul_(2.0).sub_(1.0)
        root = (torch.cat([p.s / p.s.shape[1] for p in points], 1) * cohort.weight[:, None]).sqrt_()
        coded: Blocks = {}
        for i, (point, r, sigma, f) in enumerate(
            zip(
                points,
                self.ranks,
                root.split(self.ranks, 1),
                signs.split([r * r for r in self.ranks], 1),
                strict=True,
            )
        ):
            coder = sigma[:, :, None] * f.view(-1, r, r)
            coded[f"u{i}"] = thin_product(point.u, coder).mT
            coded[f"v{i}"] = thin_product(point.v, coder).mT
        factors = Group(coded, weighting="none")
        biases = {f"b{i}": b.clone() for i, b in enumerate(bias)}
        if self.config.bias_mode == "ota":
            return factors, Group(biases)
        reason = "the paper describes no uplink of the biases"
        return factors, Group(biases, route="ideal", reason=reason)

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        """eq. (31): the product of the two received sums, refactored; with silent devices, over
        the share of the weight that arrived."""
        factors, biases = received.mean
        count = received.count[0]
        assert isinstance(count, Tensor)
        scale = count.clamp_min(1e-12).rsqrt()[:, None, None]
        layers = range(len(self.ranks))
        points = compress(
            [(factors[f"u{i}"] * scale).mT for i in layers],
            [(factors[f"v{i}"] * scale).mT for i in layers],
            self.ranks,
        )
        state: Blocks = {}
        for i, point in enumerate(points):
            state |= _point_blocks(i, point)
            state[f"b{i}"] = biases[f"b{i}"]
        return state

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        owned = {name: block.flatten(0, 1) for name, block in devices.items()}
        return {
            "global": View(server, self._predict),
            "local": View(owned, self._predict, owner="device"),
        }

    def _predict(self, blocks: Blocks, x: Tensor) -> Tensor:
        params: dict[str, object] = {}
        for i, layer in enumerate(self.model.layers):
            params[layer.weight] = LowRankMap(_point(blocks, i))
            params[layer.bias] = blocks[f"b{i}"]
        return self.model.logits(params, x)

    def flops(self, samples: int) -> float:
        """Forward and backward through the factors, and the factored step and coding, Table I."""
        total = 0.0
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            sides = layer.inputs + layer.outputs
            total += 6.0 * samples * rank * sides + 20.0 * sides * rank**2 + 100.0 * rank**3
        return total


def _as_lies(block: Tensor) -> Tensor:
    """A thin block [n, M, R] as it lies in memory, [n, R, M], or back; other blocks as they are."""
    return block.mT if block.dim() == 3 else block


def _point(blocks: Blocks, layer: int) -> LowRank:
    return LowRank(blocks[f"u{layer}"], blocks[f"s{layer}"], blocks[f"v{layer}"])


def _point_blocks(layer: int, point: LowRank) -> Blocks:
    return {f"u{layer}": point.u, f"s{layer}": point.s, f"v{layer}": point.v}


def _tangent(
    own: LowRank,
    anchor: LowRank,
    weight: LowRankMap,
    pair: Pair,
    of_loss: Tensor,
    of_penalty: Tensor,
) -> Tangent:
    """P_T(a G + b (Theta_k - Theta_0)), with the gradient G = x^T g by way of the batch, a =
    of_loss, b = of_penalty [n, 1, 1]. Theta_k lies in its own tangent space, along H alone."""
    x, g = pair
    gv = torch.bmm(g, own.v) if weight.gv is None else weight.gv
    assert weight.xu is not None
    s0 = anchor.s[:, :, None] * of_penalty
    pull_v = torch.bmm(anchor.v.mT, own.v).mul_(s0)
    pull_u = torch.bmm(anchor.u.mT, own.u).mul_(s0)
    by_v = torch.bmm((gv * of_loss).mT, x)  # [n, R, M]
    by_v.baddbmm_(pull_v.mT, anchor.u.mT, alpha=-1.0)
    by_u = torch.bmm((weight.xu * of_loss).mT, g)
    by_u.baddbmm_(pull_u.mT, anchor.v.mT, alpha=-1.0)
    tangent = project(own, by_v.mT, by_u.mT)
    tangent.h.diagonal(dim1=1, dim2=2).addcmul_(own.s, of_penalty[:, 0])
    return tangent
