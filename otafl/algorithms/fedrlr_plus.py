"""Train low-rank models in the broadcast one's tangent space, where updates add exactly (FedRLR+).

FedRLR (Xue and Lau) superposes randomly coded factors and multiplies the two sums, which costs an
error as large as the model itself, whatever the noise. Here the payload is linear in what the
server wants. It broadcasts Theta_0 = U S V^T of rank R in each layer; a device trains in the
tangent space there, W = Theta_0 + A V^T + U B^T with V^T B = 0, by SGD on A [M, R] and B [N, R],
whose steps are Riemannian gradients: A -= eta G V and B -= eta (I - V V^T) G^T U. It sends A and B,
R (M + N) reals a layer as in FedRLR, and all devices share the frame (U, V), so the mean of what
they send is the mean of the increments W - Theta_0: no cross term, an error of fading and noise
alone, in proportion to the increment. The server adds momentum, retracts to rank R and carries the
momentum to the new tangent space by projection. Devices keep nothing between rounds.

A bias is the last row of its layer's matrix, whose input is the constant 1: R reals more, and none
that are free. Riemannian gradient and retraction: FedRLR eqs. (15)-(19), (47); transport by
projection: Absil, Mahony, Sepulchre 2008, section 8.1.3; server momentum: Hsu, Qi, Brown 2019,
"Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification".
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms import low_rank_layers
from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome, Views
from otafl.algorithms.low_rank_layers import LowRankSettings, point, point_blocks
from otafl.algorithms.whole_models import step_size
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import stackable
from otafl.factorised import lowrank
from otafl.factorised.lowrank import LowRank, LowRankMap, Tangent
from otafl.models.base import Model, Shapes
from otafl.models.layered import LayeredModel, Pair


class TangentWeight:
    """W = Theta + A V^T + U B^T acts as a weight (`models.layered.LinearMap`) on [x, 1], its last
    row being the bias. at: A^T [n, R, M + 1], bt: B^T [n, R, N]; the point's u is [n, M + 1, R]."""

    def __init__(self, at_point: LowRank, at: Tensor, bt: Tensor) -> None:
        self.point, self.at, self.bt = at_point, at, bt
        self._xu: Tensor | None = None  # [x, 1] U and g V [n, B, R] of the last passes
        self._gv: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u, s, v = self.point
        x = x.expand(len(u), -1, -1)
        self._xu = _with_one(x, u.mT)
        right = torch.addcmul(self.bt, s[..., None], v.mT)  # S V^T + B^T
        return torch.bmm(self._xu, right).baddbmm_(_with_one(x, self.at), v.mT)

    def backward(self, g: Tensor) -> Tensor:
        u, s, v = self.point
        self._gv = torch.bmm(g, v)
        left = torch.addcmul(self.at, s[..., None], u.mT)  # S U^T + A^T
        out = torch.bmm(self._gv, left[:, :, :-1])
        return out.baddbmm_(torch.bmm(g, self.bt.mT), u.mT[:, :, :-1])

    def descend_(self, pair: Pair, step: Tensor) -> None:
        """Move A and B by one Riemannian step of size step [n, 1, 1] against the gradient [x, 1]^T
        g, of whose last passes this is the weight."""
        x, g = pair
        v = self.point.v
        assert self._xu is not None
        gv = (torch.bmm(g, v) if self._gv is None else self._gv) * -step
        self.at[:, :, :-1].baddbmm_(gv.mT, x)
        self.at[:, :, -1] += gv.sum(1)
        utg = torch.bmm((self._xu * -step).mT, g)
        self.bt.add_(utg).baddbmm_(torch.bmm(utg, v), v.mT, alpha=-1.0)  # V^T B stays 0


def _with_one(x: Tensor, thin_t: Tensor) -> Tensor:
    """Return [x, 1] thin [n, B, R] for thin^T [n, R, M + 1]."""
    return torch.baddbmm(thin_t[:, None, :, -1], x, thin_t[:, :, :-1].mT)


class FedRLRPlus(Algorithm):
    """Keeps server blocks "u<l>" [S, M + 1, R], "s<l>" [S, R], "v<l>" [S, N, R] of Theta_0, and of
    the momentum D V^T + U E^T there "d<l>" [S, M + 1, R], "e<l>" [S, N, R]; no device state."""

    model: LayeredModel

    class Settings(DecayedSettings, LowRankSettings):
        name: Literal["fedrlr_plus"] = "fedrlr_plus"
        server_learning_rate: float = stackable(1.0, gt=0)
        """factor on the server's step along the averaged increments"""
        momentum: float = stackable(0.8, ge=0, lt=1)
        """share of the server's last step that it takes again"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, low_rank_layers.layered(model, settings.name), devices)
        self.ranks = low_rank_layers.ranks_of(settings.rank, self.model)
        self._shapes: Shapes = {}
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            self._shapes |= {f"u{i}": (rank, layer.inputs + 1), f"s{i}": (rank,)}
            self._shapes |= {f"v{i}": (rank, layer.outputs)}

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Start at the model's start, truncated to rank R at the Frobenius norm it had; momentum
        zero."""
        server: c.Tensors = {}
        starts = low_rank_layers.start_weights(self.model, streams)
        for i, (rank, (weight, bias)) in enumerate(zip(self.ranks, starts, strict=True)):
            start = lowrank.truncate(torch.cat([weight, bias[:, None]], 1), rank, rescale=True)
            server |= point_blocks(i, start)
            server |= {f"d{i}": torch.zeros_like(start.u), f"e{i}": torch.zeros_like(start.v)}
        return server, {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return low_rank_layers.sent_down(server, self._shapes)

    def local(self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext) -> Outcome:
        blocks, work = low_rank_layers.received_blocks(broadcast, self._shapes), context.work
        step = step_size(context.hyper, context.round)[context.cohort.trial]
        coded: c.Tensors = {}
        params: dict[str, Any] = {}
        weights = []
        for i, layer in enumerate(self.model.layers):
            at = point(blocks, i)
            coded[f"a{i}"], coded[f"b{i}"] = torch.zeros_like(at.u.mT), torch.zeros_like(at.v.mT)
            weights.append(TangentWeight(at, coded[f"a{i}"], coded[f"b{i}"]))
            params[layer.weight] = weights[i]
            params[layer.bias] = torch.zeros_like(at.v[:, :, 0])  # it is in the weight
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch_loss, pairs = self.model.pairs(params, work.batch(index))
            loss += batch_loss
            for weight, pair in zip(weights, pairs, strict=True):
                weight.descend_(pair, step[:, None, None])
        return {}, (c.Group(coded),), loss / work.steps

    def combine(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        """Step by momentum in the tangent space: Theta_0 <- R(Theta_0 + lr xi), xi <- beta T(xi) +
        mean."""
        mean = received.mean[0]
        beta = context.hyper["momentum"][:, None, None]
        step = context.hyper["server_learning_rate"][:, None, None]
        points = [point(server, i) for i in range(len(self.ranks))]
        steps, momenta = [], []
        for i, at in enumerate(points):
            a, b = mean[f"a{i}"].mT, mean[f"b{i}"].mT
            b = lowrank.complement(at.v, b)  # along V there is noise alone
            a, b = a + beta * server[f"d{i}"], b + beta * server[f"e{i}"]
            momenta.append((a, b))
            h = at.u.mT @ a
            steps.append(Tangent(step * h, step * lowrank.complement(at.u, a), step * b))
        state: c.Tensors = {}
        moved = [lowrank.reorthonormalise(to) for to in lowrank.retract(points, steps)]
        for i, (at, to, momentum) in enumerate(zip(points, moved, momenta, strict=True)):
            state |= point_blocks(i, to) | _carried(i, at, momentum, to)
        return state

    def spread(self, server: c.Tensors) -> c.Tensors:
        """Return the weights, each with its bias as the last row."""
        return {f"w{i}": lowrank.dense(point(server, i)) for i in range(len(self.ranks))}

    def gathered(self, server: c.Tensors, told: c.Tensors) -> c.Tensors:
        """Return the weights truncated to rank R, with the server's own momentum there."""
        state: c.Tensors = {}
        for i, rank in enumerate(self.ranks):
            to = lowrank.truncate(told[f"w{i}"], rank)
            momentum = server[f"d{i}"], server[f"e{i}"]
            state |= point_blocks(i, to) | _carried(i, point(server, i), momentum, to)
        return state

    def views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        model = {name: server[name] for name in self._shapes}
        return {"global": c.View(model, self._predict)}

    def constants(self) -> dict[str, float]:
        """Return the compression of the weights; a bias costs R reals more."""
        return low_rank_layers.of_sides(self.model, self.ranks)

    def _predict(self, blocks: c.Tensors, x: Tensor) -> Tensor:
        params: dict[str, Any] = {}
        for i, layer in enumerate(self.model.layers):
            u, s, v = point(blocks, i)
            params[layer.weight] = LowRankMap(LowRank(u[:, :-1], s, v))
            params[layer.bias] = torch.einsum("nr,nr,nor->no", u[:, -1], s, v)
        return self.model.logits(params, x)

    def flops(self, load: c.Workload) -> np.ndarray:
        """Return the operations: in each step passes through the two thin pairs of factors of each
        layer, the gradients by A and B, and the steps, B's with its part along V taken off."""
        total = 2.0 * load.steps * self.model.elementwise * load.batch
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            m, n = layer.inputs + 1, layer.outputs
            of_sample = 10.0 * (m + n) - (0.0 if i else 4.0 * m + 2.0 * n)  # nothing is before it
            step = 4.0 * n * rank**2 + 4.0 * (m + n) * rank
            total += load.steps * (layer.positions * rank * of_sample * load.batch + step)
        return total


def _carried(layer: int, at: LowRank, momentum: tuple[Tensor, Tensor], to: LowRank) -> c.Tensors:
    """Return a layer's momentum A V^T + U B^T projected to the tangent space at another point."""
    a, b = momentum
    xi_v = a @ (at.v.mT @ to.v) + at.u @ (b.mT @ to.v)
    xi_u = at.v @ (a.mT @ to.u) + b @ (at.u.mT @ to.u)
    return {f"d{layer}": xi_v, f"e{layer}": lowrank.complement(to.v, xi_u)}
