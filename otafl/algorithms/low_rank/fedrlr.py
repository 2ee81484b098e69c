"""Low-rank models on their manifold, sent as randomly coded factors (FedRLR).

Riemannian low-rank model compression. Each device keeps its own weights of rank R and trains them
by Riemannian SGD, with a pull towards the broadcast weights. It sends two thin factors a layer,
coded by a random sign matrix. The product of the two superposed sums estimates the sum of the
products. All computation is on factors: no round forms a dense weight, gradient or SVD.

The trained models are the devices' own (local_test_accuracy). The global one stays between chance
and 0.3 on digits for any number of rounds. The reason is that the product of two superposed sums
has an error as large as the model. For a global model use fedrlr_plus, which sends as many symbols.

The default step size is for pixels from 0 to 1. With it local models reach 0.75 in 100 rounds of 10
steps, and the global model of fedrlr_plus reaches 0.8. The paper's constants are for pixels from 0
to 255: q = 2 with the factor 1/K on the gradient. Without that factor its Table II takes 75 rounds
of 40 steps.

References
----------
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.baselines.whole_model_methods import BiasMode, build_bias_group
from otafl.algorithms.deliveries import replace_delivered
from otafl.algorithms.low_rank import low_rank_layers
from otafl.algorithms.low_rank.low_rank_layers import LowRankSettings, get_point, name_point
from otafl.core import contracts as c
from otafl.core.rng import Streams, declare_purpose
from otafl.core.settings import declare_stackable
from otafl.factorised import lowrank, measures
from otafl.factorised.lowrank import LowRank, LowRankMap, Tangent
from otafl.models.base import Model, Shapes
from otafl.models.layered import LayeredModel, Pair

REORTHONORMALISE_EVERY = 64
"""Local steps between corrections of the rounding drift of U and V."""

SIGNS = declare_purpose("rlc", __name__)


class FedRLR(Algorithm):
    r"""Riemannian low-rank federated learning with random linear coding.

    The tensors of layer l are "uL" [..., M, R], "sL" [..., R], "vL" [..., N, R] and "bL" [..., N]
    for L = l: of Theta_0 at the server with leading S, of Theta_k at the devices with leading S, K.
    Devices also have "weight" [..., 1], the share w_k of all samples with which the device last
    counted.

    Whatever the uplink does, devices keep Theta_k and the device's last weight: Theta_k
    continues from round to round and is only pulled towards Theta_0 (Algorithm 1).

    Notes
    -----
    A local step follows the Euclidean gradient, eq. (49), projected on the tangent space at Theta_k
    (17), and retracts to rank R (18), (19):

    .. math::

        \Delta_k = \kappa \left[ G_k + \mu (\Theta_k - \Theta_0) \right], \quad \Theta_k \leftarrow
        \mathrm{SVD}_R \left( \Theta_k - \eta P_T(\Delta_k) \right)

    The device sends the factors of eq. (21), coded by a matrix F_k with random entries +-1/sqrt(R),
    eqs. (25), (26), here with the weight w_k of the device:

    .. math::

        S_{Uk} = \sqrt{w_k} U_k \sqrt{\Sigma_k} F_k, \quad S_{Vk} = \sqrt{w_k} F_k^T \sqrt{\Sigma_k}
        V_k^T

    The server multiplies the two received sums, eq. (31). E[F_k F_j^T] is I for k = j and 0
    otherwise, so the expected product is the weighted sum of the Theta_k.

    Examples
    --------
    `studies/fedrlr/fedrlr_fig8.yaml` compares it with the paper's baselines.
    """

    model: LayeredModel

    payload: ClassVar = PayloadKind(is_increment=False)

    excludes: ClassVar[Mapping[str, str]] = {
        "rules": "needs plain sums of factors, of which no rule makes a robust product",
        "merging": "has factors, whose means are not those of the models",
    }

    class Settings(LowRankSettings):
        example: ClassVar = {"training.rounds": 100, "training.local_steps": 10}

        name: Literal["fedrlr"] = "fedrlr"
        q: float = declare_stackable(200.0, gt=0)
        """constant of the step size eta = q / (nu + t); 2 in the paper, for pixels from 0 to 255"""
        nu: float = declare_stackable(1000.0, gt=0)
        """constant of the step size eta = q / (nu + t), in rounds"""
        mu_schedule: Literal["inverse_eta", "constant"] = "inverse_eta"
        """schedule of the penalty weight mu: inverse_eta, c1 / eta, or constant, mu"""
        c1: float = declare_stackable(0.006, ge=0)
        """constant of the schedule inverse_eta, below 1"""
        mu: float = declare_stackable(3.0, ge=0)
        """penalty weight of the constant schedule"""
        inv_k_gradient: bool = False
        """whether the loss gradient has the paper's factor 1/K"""
        inv_k_penalty: bool | None = None
        """whether the penalty has the factor 1/K; as inv_k_gradient if not given"""
        bias_mode: BiasMode = "ideal"
        init_rescale: bool = True
        """whether the start of rank R has the Frobenius norm that it had before truncation"""
        evaluate_mean: bool = False
        """whether to evaluate Theta_0*, the error-free projected mean of the local models, as a
        diagnostic"""

        def find_conflicts(self) -> Iterator[str]:
            if self.mu_schedule == "inverse_eta" and self.c1 >= 1:
                yield f"c1 must be below 1 (Lemma 2); got {self.c1:g}"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, low_rank_layers.require_layers(model, settings.name), devices)
        self.ranks = low_rank_layers.compute_ranks(settings.rank, self.model)
        self.constants = low_rank_layers.compute_sides_compression(self.model, self.ranks)
        self._layers = range(len(self.ranks))
        self._shapes: Shapes = {}
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            self._shapes |= {f"u{i}": (rank, layer.inputs), f"s{i}": (rank,)}
            self._shapes |= {f"v{i}": (rank, layer.outputs), f"b{i}": (layer.outputs,)}
        inv_k_penalty = settings.inv_k_penalty
        if inv_k_penalty is None:
            inv_k_penalty = settings.inv_k_gradient
        self._kappa_gradient = 1.0 / devices if settings.inv_k_gradient else 1.0
        self._kappa_penalty = 1.0 / devices if inv_k_penalty else 1.0

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return Theta_k = Theta_0, the model's start truncated to rank R.

        The engine copies it for each device.
        """
        weights, biases = zip(*low_rank_layers.draw_start_weights(self.model, streams), strict=True)
        points = [
            lowrank.truncate(weight, rank, self.settings.init_rescale)
            for weight, rank in zip(weights, self.ranks, strict=True)
        ]
        server = _name_tensors(points, biases)
        devices = {name: block[:, None] for name, block in server.items()}
        share = torch.full_like(devices["b0"][..., :1], 1.0 / self.num_devices)
        return server, devices | {"weight": share}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return low_rank_layers.broadcast_layers(server, self._shapes)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        layers, work, cohort = self._layers, context.local_data, context.cohort
        eta = context.gather_hyper("q") / (context.gather_hyper("nu") + context.round)
        if self.settings.mu_schedule == "constant":
            mu = context.gather_hyper("mu")
        else:
            mu = context.gather_hyper("c1") / eta
        own = [get_point(devices, i) for i in layers]
        global_model = low_rank_layers.unpack_broadcast(broadcast, self._shapes)
        anchor = [get_point(global_model, i) for i in layers]
        bias = [devices[f"b{i}"] for i in layers]
        bias0 = [global_model[f"b{i}"] for i in layers]
        of_loss = (-self._kappa_gradient * eta)[:, None, None]
        of_penalty = (-self._kappa_penalty * eta * mu)[:, None, None]
        loss = torch.zeros_like(eta)
        steps_before = int(context.round) * work.steps
        for step in range(work.steps):
            maps = [LowRankMap(one) for one in own]
            batch_loss, pairs = self.model.compute_pairs(
                self._name_params(maps, bias), work.draw_batch(step)
            )
            loss += batch_loss
            # eq. (49): Delta = kappa (G + mu (Theta_k - Theta_0)), here times -eta
            tangents = [
                _project_gradient(own[i], anchor[i], maps[i], pairs[i], of_loss, of_penalty)
                for i in layers
            ]
            for i in layers:
                pull = (bias[i] - bias0[i]).mul_(of_penalty[:, 0])
                bias[i] = pull.addcmul_(pairs[i].g.sum(1), of_loss[:, 0]).add_(bias[i])
            own = lowrank.retract(own, tangents)  # eqs. (17)-(19)
            if (steps_before + step + 1) % REORTHONORMALISE_EVERY == 0:
                own = [lowrank.reorthonormalise(one) for one in own]
        state = {"weight": cohort.weight[:, None].clone()} | _name_tensors(own, bias)
        return state, self._encode(own, bias, context), loss / work.steps

    def _encode(self, points: list[LowRank], bias: list[Tensor], context: c.Context) -> c.Payload:
        """Code the factors by eqs. (21), (25), (26), with the square root of the weight.

        The factors are sent transposed, "uL" [n, R, M] and "vL" [n, R, N].
        """
        cohort, sizes = context.cohort, [r * r for r in self.ranks]
        signs = context.streams.draw_device_uniform(
            SIGNS, context.round, cohort.trial, cohort.device, (sum(sizes),)
        )
        signs = (signs < 0.5).to(bias[0].dtype).mul_(2.0).sub_(1.0)
        root = (torch.cat([p.s / p.s.shape[1] for p in points], 1) * cohort.weight[:, None]).sqrt_()
        coded: c.Tensors = {}
        each = zip(
            points, self.ranks, root.split(self.ranks, 1), signs.split(sizes, 1), strict=True
        )
        for i, (one, r, sigma, f) in enumerate(each):
            coder = sigma[:, :, None] * f.view(-1, r, r)
            coded[f"u{i}"] = lowrank.multiply_thin(one.u, coder).mT
            coded[f"v{i}"] = lowrank.multiply_thin(one.v, coder).mT
        biases = {f"b{i}": b.clone() for i, b in enumerate(bias)}
        return c.Group(coded, weighting="none"), build_bias_group(biases, self.settings.bias_mode)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Factorise the product of the two received sums, eq. (31).

        With silent devices it is divided by the delivered share of the weight.
        """
        factors = {
            name: (block * received.delivered_weight(0, name).clamp_min(1e-12).rsqrt()).mT
            for name, block in received.mean[0].items()
        }
        left, right = ([factors[f"{side}{i}"] for i in self._layers] for side in "uv")
        points = lowrank.compress(left, right, self.ranks)
        biases = replace_delivered(server, received, 1)
        return _name_tensors(points, [biases[f"b{i}"] for i in self._layers])

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        owned = {name: block.flatten(0, 1) for name, block in devices.items()}
        views = {
            "global": c.View(server, self._predict),
            "local": c.View(owned, self._predict, owner="device"),
        }
        if self.settings.evaluate_mean:
            views["mean"] = c.View(self._average_models(devices), self._predict)
        return views

    def _average_models(self, devices: c.Tensors) -> c.Tensors:
        """Compute Theta_0* of eq. (20), and the weighted mean of the biases.

        Theta_0* is the best rank-R approximation of sum_k w_k Theta_k, from the devices' factors
        side by side.
        """
        weight = _normalise_weights(devices)
        own = [get_point(devices, i) for i in self._layers]
        points = lowrank.compress(
            [_concatenate_devices(p.u * (p.s * weight)[:, :, None]) for p in own],
            [_concatenate_devices(p.v) for p in own],
            self.ranks,
        )
        return _name_tensors(points, [(devices[f"b{i}"] * weight).sum(1) for i in self._layers])

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure the errors of the aggregation and the consensus, [S] each.

        T = sum_k w_k Theta_k is over all devices, and squared norms are summed over the layers.
        "product_error" is |Theta_0 - T|^2 / |T|^2. "product_error_law" is its expectation for unit
        gains without noise (`measures.compute_distortion` over |T|^2). "consensus_gap"
        is the mean over devices of |Theta_k - T|^2 / |T|^2.

        If all devices send in every round, T is the mean of exactly the models behind Theta_0. With
        partial participation T also has the last weights of absent devices. The error then includes
        sampling, stale devices and silence, which the law does not model. Neither does it model
        fading under GBMA, nor noise.
        """
        weight = _normalise_weights(devices)[..., 0].double()
        total, error, law, gap = weight.new_zeros(4, len(weight))
        for i, rank in enumerate(self.ranks):
            own, anchor = get_point(devices, i), get_point(server, i)
            points = LowRank(
                *(torch.cat([a, b[:, None]], 1).double() for a, b in zip(own, anchor, strict=True))
            )
            gram = measures.compute_inner_products(points)
            products = gram[:, :-1, :-1]
            to_mean = torch.bmm(products, weight[..., None])[..., 0]  # <Theta_k, T>
            square = (to_mean * weight).sum(1)
            squares = products.diagonal(dim1=1, dim2=2)
            crossed = (gram[:, :-1, -1] * weight).sum(1)
            total += square
            error += gram[:, -1, -1] - 2.0 * crossed + square
            gap += (squares - 2.0 * to_mean).mean(1) + square
            law += measures.compute_distortion(own.s.double().sum(2), squares, square, weight, rank)
        return {
            "product_error": error / total,
            "product_error_law": law / total,
            "consensus_gap": gap / total,
        }

    def _predict(self, tensors: c.Tensors, x: Tensor) -> Tensor:
        maps = [LowRankMap(get_point(tensors, i)) for i in self._layers]
        return self.model.logits(
            self._name_params(maps, [tensors[f"b{i}"] for i in self._layers]), x
        )

    def _name_params(
        self, weights: Sequence[LowRankMap], biases: Sequence[Tensor]
    ) -> dict[str, Any]:
        """Return the model's parameters by their names."""
        params: dict[str, Any] = {}
        for layer, weight, bias in zip(self.model.layers, weights, biases, strict=True):
            params |= {layer.weight: weight, layer.bias: bias}
        return params

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the steps and of the coding, Table I.

        A step has passes through the factors, the gradient by way of the batch, the penalty's part
        of it, its projection and the retraction.
        """
        total = 2.0 * workload.num_steps * self.model.elementwise * workload.effective_batch_size
        for i, (layer, rank) in enumerate(zip(self.model.layers, self.ranks, strict=True)):
            m, n = layer.inputs, layer.outputs
            of_sample = 6.0 * (m + n) - (0.0 if i else 2.0 * m)  # no layer is before the first one
            penalty = (m + n) * (4.0 * rank**2 + rank)
            moving = lowrank.count_project_flops(m, n, rank) + lowrank.count_retract_flops(
                m + n, rank
            )
            drift = lowrank.count_reorthonormalise_flops(m + n, rank) / REORTHONORMALISE_EVERY
            products = self.model.count_products(layer.weight) * workload.effective_batch_size
            total += workload.num_steps * products * rank * of_sample
            total += workload.num_steps * (penalty + moving + drift) + 2.0 * (m + n) * rank**2
        return total


def _name_tensors(points: Sequence[LowRank], biases: Sequence[Tensor]) -> c.Tensors:
    """Return the tensors of all layers by their names."""
    out: c.Tensors = {}
    for i, (at, bias) in enumerate(zip(points, biases, strict=True)):
        out |= name_point(i, at) | {f"b{i}": bias}
    return out


def _normalise_weights(devices: c.Tensors) -> Tensor:
    """Return w_k [S, K, 1], with sum one over the devices."""
    return devices["weight"] / devices["weight"].sum(1, keepdim=True)


def _concatenate_devices(thin: Tensor) -> Tensor:
    """Reshape the devices' thin factors [S, K, M, R] to [S, M, K R], side by side."""
    return thin.transpose(1, 2).flatten(2)


def _project_gradient(
    own: LowRank,
    anchor: LowRank,
    weight: LowRankMap,
    pair: Pair,
    of_loss: Tensor,
    of_penalty: Tensor,
) -> Tangent:
    """Compute P_T(a G + b (Theta_k - Theta_0)) from the gradient's factors G = x^T g.

    a is of_loss, b is of_penalty, [n, 1, 1] each. Theta_k lies in its own tangent space, along H
    only.
    """
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
    tangent = lowrank.project(own, by_v.mT, by_u.mT)
    tangent.h.diagonal(dim1=1, dim2=2).addcmul_(own.s, of_penalty[:, 0])
    return tangent
