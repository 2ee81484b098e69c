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
from otafl.algorithms.low_rank_layers import (
    as_lies,
    compression,
    layered,
    point,
    point_blocks,
    ranks_of,
    start_weights,
)
from otafl.core.contracts import (
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
from otafl.factorised import rlc
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
from otafl.models.base import Model, Pair, Shapes, flatten, unflatten

REORTHONORMALISE_EVERY = 64
"""Local steps between corrections of the rounding drift of U and V."""


class FedRLR:
    """Blocks "u<l>" [..., M, R], "s<l>" [..., R], "v<l>" [..., N, R], "b<l>" [..., N] of each
    layer l: at the server (Theta_0) with leading S, at the devices (Theta_k) with S, K, and there
    "weight" [..., 1]: the share w_k of all samples by which a device last counted."""

    def __init__(self, config: FedRLRConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = layered(model, config.name)
        self.ranks = ranks_of(config.rank, self.model)
        self._shapes: Shapes = {}
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            self._shapes |= {f"u{i}": (rank, layer.inputs), f"s{i}": (rank,)}
            self._shapes |= {f"v{i}": (rank, layer.outputs), f"b{i}": (layer.outputs,)}
        self._devices = devices
        inv_k_penalty = config.inv_k_penalty
        if inv_k_penalty is None:
            inv_k_penalty = config.inv_k_gradient
        self._kappa_gradient = 1.0 / devices if config.inv_k_gradient else 1.0
        self._kappa_penalty = 1.0 / devices if inv_k_penalty else 1.0

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """Theta_k = Theta_0: the model's start, truncated to rank R. The devices' copies are
        spread by the engine's `expand`, in memory of their own."""
        server: Blocks = {}
        for i, (weight, bias) in enumerate(start_weights(self.model, streams)):
            server |= point_blocks(i, truncate(weight, self.ranks[i], self.config.init_rescale))
            server[f"b{i}"] = bias
        devices = {name: block[:, None] for name, block in server.items()}
        share = torch.full_like(devices["b0"][..., :1], 1.0 / self._devices)
        return server, devices | {"weight": share}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        """All blocks side by side, thin ones as they lie: one gather for the rows of a chunk."""
        return Broadcast({"model": flatten({name: as_lies(b) for name, b in server.items()})})

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
        own = [point(devices, i) for i in layers]
        flat = unflatten(broadcast.blocks["model"], self._shapes)
        global_model = {name: as_lies(block) for name, block in flat.items()}
        anchor = [point(global_model, i) for i in layers]
        bias = [devices[f"b{i}"] for i in layers]
        bias0 = [global_model[f"b{i}"] for i in layers]
        of_loss = (-self._kappa_gradient * eta)[:, None, None]
        of_penalty = (-self._kappa_penalty * eta * mu)[:, None, None]
        loss = torch.zeros_like(eta)
        for step in range(work.steps):
            maps = [LowRankMap(one) for one in own]
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
                own = [reorthonormalise(one) for one in own]
        state: Blocks = {"weight": cohort.weight[:, None].clone()}
        for i in layers:
            state |= point_blocks(i, own[i])
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
        for i, (one, r, sigma, f) in enumerate(
            zip(
                points,
                self.ranks,
                root.split(self.ranks, 1),
                signs.split([r * r for r in self.ranks], 1),
                strict=True,
            )
        ):
            coder = sigma[:, :, None] * f.view(-1, r, r)
            coded[f"u{i}"] = thin_product(one.u, coder).mT
            coded[f"v{i}"] = thin_product(one.v, coder).mT
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
        for i, of in enumerate(points):
            state |= point_blocks(i, of)
            state[f"b{i}"] = biases[f"b{i}"]
        return state

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        owned = {name: block.flatten(0, 1) for name, block in devices.items()}
        views = {
            "global": View(server, self._predict),
            "local": View(owned, self._predict, owner="device"),
        }
        if self.config.evaluate_mean:
            views["mean"] = View(self._mean(devices), self._predict)
        return views

    def _mean(self, devices: Blocks) -> Blocks:
        """Theta_0* of eq. (20), the best rank-R approximation of sum_k w_k Theta_k, from the
        devices' factors side by side; and the weighted mean of the biases."""
        weight = _shares(devices)
        layers = range(len(self.ranks))
        own = [point(devices, i) for i in layers]
        points = compress(
            [_side_by_side(p.u * (p.s * weight)[:, :, None]) for p in own],
            [_side_by_side(p.v) for p in own],
            self.ranks,
        )
        state: Blocks = {}
        for i, of in enumerate(points):
            state |= point_blocks(i, of)
            state[f"b{i}"] = (devices[f"b{i}"] * weight).sum(1)
        return state

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        """With T = sum_k w_k Theta_k over all devices and squared norms summed over the layers:
        product_error |Theta_0 - T|^2 / |T|^2, its law for unit gains and no noise (`rlc.distortion`
        over |T|^2), and consensus_gap, the mean over devices of |Theta_k - T|^2 / |T|^2.

        Where all devices send in every round, T is the mean of exactly what Theta_0 was received
        from. With partial participation it still holds every device's last weights: what product_
        error has besides is then the error of sampling, stale devices and silence, and the law,
        which knows of none of them, is not its expectation. Nor is it with GBMA, whose fading adds
        to it, or with noise.
        """
        weight = _shares(devices)[..., 0].double()
        total, error, law, gap = weight.new_zeros(4, len(weight))
        for i, rank in enumerate(self.ranks):
            own, anchor = point(devices, i), point(server, i)
            points = LowRank(
                *(torch.cat([a, b[:, None]], 1).double() for a, b in zip(own, anchor, strict=True))
            )
            gram = rlc.inner_products(points)
            products = gram[:, :-1, :-1]
            to_mean = torch.bmm(products, weight[..., None])[..., 0]  # <Theta_k, T>
            square = (to_mean * weight).sum(1)
            squares = products.diagonal(dim1=1, dim2=2)
            crossed = (gram[:, :-1, -1] * weight).sum(1)
            total += square
            error += gram[:, -1, -1] - 2.0 * crossed + square
            gap += (squares - 2.0 * to_mean).mean(1) + square
            law += rlc.distortion(own.s.double().sum(2), squares, square, weight, rank)
        return {
            "product_error": error / total,
            "product_error_law": law / total,
            "consensus_gap": gap / total,
        }

    def constants(self) -> dict[str, float]:
        return compression(self.model, self.ranks)

    def _predict(self, blocks: Blocks, x: Tensor) -> Tensor:
        params: dict[str, object] = {}
        for i, layer in enumerate(self.model.layers):
            params[layer.weight] = LowRankMap(point(blocks, i))
            params[layer.bias] = blocks[f"b{i}"]
        return self.model.logits(params, x)

    def flops(self, samples: int) -> float:
        """Forward and backward through the factors, and the factored step and coding, Table I."""
        total = 0.0
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            sides = layer.inputs + layer.outputs
            total += 6.0 * samples * layer.positions * rank * sides
            total += 20.0 * sides * rank**2 + 100.0 * rank**3
        return total


def _shares(devices: Blocks) -> Tensor:
    """w_k [S, K, 1], summing to one over the devices."""
    return devices["weight"] / devices["weight"].sum(1, keepdim=True)


def _side_by_side(thin: Tensor) -> Tensor:
    """The devices' thin factors [S, K, M, R] as one [S, M, K R]."""
    return thin.transpose(1, 2).flatten(2)


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
