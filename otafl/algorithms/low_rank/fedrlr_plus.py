"""Low-rank models in the broadcast model's tangent space, where updates add exactly (FedRLR+).

FedRLR (Xue and Lau) superposes randomly coded factors and multiplies the two sums. This costs an
error as large as the model itself, even without noise. Here the payload is linear in the mean that
the server wants. Devices train in the tangent space at the broadcast model, whose frame (U, V) all
devices share. The mean of their coordinates is the mean of their increments: no cross term, and an
error of fading and noise only, in proportion to the increment. The server adds momentum, retracts
to rank R and transports the momentum to the new tangent space by projection. Devices have no state.

The payload has R (M + N) coordinates a layer, as in FedRLR. A bias is the last row of its layer's
matrix, whose input is the constant 1. So it costs R coordinates more, and no coordinate is free.

Riemannian gradient and retraction: FedRLR eqs. (15)-(19), (47); transport by projection: Absil,
Mahony, Sepulchre 2008, section 8.1.3; server momentum: Hsu, Qi, Brown 2019, "Measuring the Effects
of Non-Identical Data Distribution for Federated Visual Classification".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome, Views
from otafl.algorithms.low_rank import low_rank_layers
from otafl.algorithms.low_rank.low_rank_layers import LowRankSettings, get_point, name_point
from otafl.algorithms.parameters import compute_step_size
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.factorised import lowrank
from otafl.factorised.lowrank import LowRank, LowRankMap
from otafl.models.base import Model, Shapes
from otafl.models.layered import LayeredModel, Pair


class TangentWeight:
    """Weight in the tangent space at a low-rank point, for inputs [x, 1].

    It is a `models.linear_layer.LinearMap`. The last row of the matrix is the bias.

    Parameters
    ----------
    at_point : LowRank
        Point U S V^T, with U [n, M + 1, R].
    a_t : Tensor [n, R, M + 1]
        A^T.
    bt : Tensor [n, R, N]
        B^T.
    """

    def __init__(self, at_point: LowRank, a_t: Tensor, bt: Tensor) -> None:
        self.point, self.a_t, self.b_t = at_point, a_t, bt
        self._xu: Tensor | None = None  # [x, 1] U and g V [n, B, R] of the last passes
        self._gv: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u, s, v = self.point
        x = x.expand(len(u), -1, -1)
        self._xu = _multiply_with_bias(x, u.mT)
        right = torch.addcmul(self.b_t, s[..., None], v.mT)  # S V^T + B^T
        return torch.bmm(self._xu, right).baddbmm_(_multiply_with_bias(x, self.a_t), v.mT)

    def backward(self, g: Tensor) -> Tensor:
        u, s, v = self.point
        self._gv = torch.bmm(g, v)
        left = torch.addcmul(self.a_t, s[..., None], u.mT)  # S U^T + A^T
        out = torch.bmm(self._gv, left[:, :, :-1])
        return out.baddbmm_(torch.bmm(g, self.b_t.mT), u.mT[:, :, :-1])

    def descend_(self, pair: Pair, step: Tensor) -> None:
        """Move A and B by one Riemannian SGD step, in place.

        Parameters
        ----------
        pair : Pair
            Factors x, g of the gradient [x, 1]^T g. The last passes used this weight.
        step : Tensor [n, 1, 1]
            Step size.
        """
        x, g = pair
        v = self.point.v
        assert self._xu is not None
        gv = (torch.bmm(g, v) if self._gv is None else self._gv) * -step
        self.a_t[:, :, :-1].baddbmm_(gv.mT, x)
        self.a_t[:, :, -1] += gv.sum(1)
        utg = torch.bmm((self._xu * -step).mT, g)
        self.b_t.add_(utg).baddbmm_(torch.bmm(utg, v), v.mT, alpha=-1.0)  # V^T B stays 0


def _multiply_with_bias(x: Tensor, thin_t: Tensor) -> Tensor:
    """Compute [x, 1] thin [n, B, R] from thin^T [n, R, M + 1]."""
    return torch.baddbmm(thin_t[:, None, :, -1], x, thin_t[:, :, :-1].mT)


class FedRLRPlus(Algorithm):
    r"""Low-rank federated learning with tangent coordinates.

    The server's tensors of layer l, for L = l, are "uL" [S, M + 1, R], "sL" [S, R] and "vL" [S, N,
    R] of Theta_0, and "dL" [S, M + 1, R] and "eL" [S, N, R] of the momentum D V^T + U E^T there.
    Devices have no state.

    Notes
    -----
    A device trains in the tangent space at the broadcast Theta_0 = U S V^T of rank R,

    .. math::

        W = \Theta_0 + A V^T + U B^T, \quad V^T B = 0

    by SGD steps that are Riemannian gradients, and sends A and B:

    .. math::

        A \leftarrow A - \eta G V, \quad B \leftarrow B - \eta (I - V V^T) G^T U

    The server steps by momentum with the retraction R and the transport T:

    .. math::

        \xi \leftarrow \beta T(\xi) + \mathrm{mean}, \quad \Theta_0 \leftarrow R(\Theta_0 + \eta_s
        \xi)

    Examples
    --------
    `studies/fedrlr/fedrlr_plus.yaml` compares it with FedRLR.
    """

    model: LayeredModel

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "has factors, whose means are not those of the models",
    }

    class Settings(DecayedSettings, LowRankSettings):
        name: Literal["fedrlr_plus"] = "fedrlr_plus"
        server_learning_rate: float = declare_stackable(1.0, gt=0)
        """factor of the server's step along the averaged increments"""
        momentum: float = declare_stackable(0.8, ge=0, lt=1)
        """share of the server's last step in its next one"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, low_rank_layers.require_layers(model, settings.name), devices)
        self.ranks = low_rank_layers.compute_ranks(settings.rank, self.model)
        self.constants = low_rank_layers.compute_sides_compression(self.model, self.ranks)
        self._shapes: Shapes = {}
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            self._shapes |= {f"u{i}": (rank, layer.inputs + 1), f"s{i}": (rank,)}
            self._shapes |= {f"v{i}": (rank, layer.outputs)}

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the model's start, truncated to rank R with its norm, and momentum zero."""
        server: c.Tensors = {}
        starts = low_rank_layers.draw_start_weights(self.model, streams)
        for i, (rank, (weight, bias)) in enumerate(zip(self.ranks, starts, strict=True)):
            start = lowrank.truncate(torch.cat([weight, bias[:, None]], 1), rank, rescale=True)
            server |= name_point(i, start)
            server |= {f"d{i}": torch.zeros_like(start.u), f"e{i}": torch.zeros_like(start.v)}
        return server, {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return low_rank_layers.broadcast_layers(server, self._shapes)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        blocks, work = low_rank_layers.unpack_broadcast(broadcast, self._shapes), context.local_data
        step = compute_step_size(context.hyper, context.round)[context.cohort.trial]
        coded: c.Tensors = {}
        params: dict[str, Any] = {}
        weights = []
        for i, layer in enumerate(self.model.layers):
            at = get_point(blocks, i)
            coded[f"a{i}"], coded[f"b{i}"] = torch.zeros_like(at.u.mT), torch.zeros_like(at.v.mT)
            weights.append(TangentWeight(at, coded[f"a{i}"], coded[f"b{i}"]))
            params[layer.weight] = weights[i]
            params[layer.bias] = torch.zeros_like(at.v[:, :, 0])  # it is in the weight
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch_loss, pairs = self.model.compute_pairs(params, work.draw_batch(index))
            loss += batch_loss
            for weight, pair in zip(weights, pairs, strict=True):
                weight.descend_(pair, step[:, None, None])
        return {}, (c.Group(coded),), loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Step by momentum in the tangent space, then retract and transport the momentum."""
        mean = received.mean[0]
        beta = context.hyper["momentum"][:, None, None]
        step = context.hyper["server_learning_rate"][:, None, None]
        points = [get_point(server, i) for i in range(len(self.ranks))]
        steps, momenta = [], []
        for i, at in enumerate(points):
            a, b = mean[f"a{i}"].mT, mean[f"b{i}"].mT
            b = lowrank.project_out(at.v, b)  # along V there is only noise
            a, b = a + beta * server[f"d{i}"], b + beta * server[f"e{i}"]
            momenta.append((a, b))
            steps.append(lowrank.make_tangent(at, step * a, step * b))
        state: c.Tensors = {}
        moved = [lowrank.reorthonormalise(to) for to in lowrank.retract(points, steps)]
        for i, (at, to, (a, b)) in enumerate(zip(points, moved, momenta, strict=True)):
            # the momentum A V^T + U B^T is projected on the tangent space at the new point
            xi_v = a @ (at.v.mT @ to.v) + at.u @ (b.mT @ to.v)
            xi_u = at.v @ (a.mT @ to.u) + b @ (at.u.mT @ to.u)
            state |= name_point(i, to) | {f"d{i}": xi_v, f"e{i}": lowrank.project_out(to.v, xi_u)}
        return state

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        model = {name: server[name] for name in self._shapes}
        return {"global": c.View(model, self._predict)}

    def _predict(self, tensors: c.Tensors, x: Tensor) -> Tensor:
        params: dict[str, Any] = {}
        for i, layer in enumerate(self.model.layers):
            u, s, v = get_point(tensors, i)
            params[layer.weight] = LowRankMap(LowRank(u[:, :-1], s, v))
            params[layer.bias] = torch.einsum("nr,nr,nor->no", u[:, -1], s, v)
        return self.model.logits(params, x)

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the steps.

        A step has passes through the two thin pairs of factors of each layer, the gradients by A
        and B, and the steps, B's with a projection.
        """
        total = 2.0 * workload.num_steps * self.model.elementwise * workload.effective_batch_size
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            m, n = layer.inputs + 1, layer.outputs
            of_sample = 10.0 * (m + n) - (
                0.0 if i else 4.0 * m + 2.0 * n
            )  # no layer is before the first
            step = 4.0 * n * rank**2 + 4.0 * (m + n) * rank
            products = self.model.count_products(layer.weight) * workload.effective_batch_size
            total += workload.num_steps * (products * rank * of_sample + step)
        return total
