"""Adapters in the tangent space at the best low-rank part of a weight: increments add exactly.

The frozen weight without this part is W - U S V^T, as in PiSSA. Devices train coordinates a and b
at U S V^T + a V^T + U b^T as in FedRLR+, and the server retracts the mean to rank r. Tensors are
"U.W" [.., M, r], "S.W" [.., r] and "V.W" [.., N, r] of the weight named W, and "a.W" and "b.W".

References
----------
Meng, Wang, Zhang 2024, "PiSSA: Principal Singular Values and Singular Vectors Adaptation of Large
    Language Models", NeurIPS.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.algorithms.adapters.adapters import AdaptedLayer, Factors, to_matrix, to_weight
from otafl.core import contracts as c
from otafl.factorised import lowrank
from otafl.factorised.lowrank import LowRank, Tangent

POINT = ("U", "S", "V")


def get_point(tensors: c.Tensors, layer: AdaptedLayer) -> LowRank:
    """Return the low-rank point of a layer."""
    return LowRank(*(tensors[f"{part}.{layer.weight}"] for part in POINT))


def name_point(layer: AdaptedLayer, point: LowRank) -> c.Tensors:
    """Return the tensors of a layer's point by their names."""
    return {f"{part}.{layer.weight}": block for part, block in zip(POINT, point, strict=True)}


def split_weights(layers: Sequence[AdaptedLayer], params: c.Tensors) -> tuple[c.Tensors, c.Tensors]:
    """Split weights into their best low-rank parts and the rest.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    params : dict of str to Tensor [S, *shape]
        Parameters.

    Returns
    -------
    dict of str to Tensor
        Points.
    dict of str to Tensor [S, *shape]
        Parameters, without the low-rank parts of the layers' weights.
    """
    points: c.Tensors = {}
    rest = dict(params)
    for layer in layers:
        point = lowrank.truncate(to_matrix(params[layer.weight]), layer.rank)
        points |= name_point(layer, point)
        shape = tuple(params[layer.weight].shape[1:])
        rest[layer.weight] = params[layer.weight] - to_weight(lowrank.to_dense(point), shape)
    return points, rest


def make_coordinates(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> c.Tensors:
    """Make coordinates a [n, M, r] and b [n, N, r] of zero."""
    out: c.Tensors = {}
    for layer in layers:
        u, _, v = get_point(tensors, layer)
        out[f"a.{layer.weight}"], out[f"b.{layer.weight}"] = (
            torch.zeros_like(u),
            torch.zeros_like(v),
        )
    return out


def compose_tangents(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> Factors:
    """Return factors of rank 2 r of U S V^T + a V^T + U b^T, or of rank r without coordinates."""
    factors: Factors = {}
    for layer in layers:
        u, s, v = get_point(tensors, layer)
        left, right = u, v * s[:, None]
        if f"a.{layer.weight}" in tensors:
            right = torch.cat([right + tensors[f"b.{layer.weight}"], v], 2)
            left = torch.cat([u, tensors[f"a.{layer.weight}"]], 2)
        factors[layer.weight] = left.mT, right
    return factors


def project_gradients_(
    layers: Sequence[AdaptedLayer], tensors: c.Tensors, gradients: c.Tensors
) -> None:
    """Remove the part of the gradients by b along V, so that they are Riemannian."""
    for layer in layers:
        name = f"b.{layer.weight}"
        gradients[name] = lowrank.project_out(get_point(tensors, layer).v, gradients[name])


def retract(
    layers: Sequence[AdaptedLayer], server: c.Tensors, mean: c.Tensors, step: Tensor
) -> c.Tensors:
    """Retract the mean of the devices' coordinates to rank r.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    server : dict of str to Tensor [S, *shape]
        Points.
    mean : dict of str to Tensor [S, *shape]
        Mean coordinates. The part of b along V is only noise, and is removed.
    step : Tensor [S, 1, 1]
        Factor of the step.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Next points.
    """
    points = [get_point(server, layer) for layer in layers]
    steps = []
    for layer, at in zip(layers, points, strict=True):
        a, b = mean[f"a.{layer.weight}"], lowrank.project_out(at.v, mean[f"b.{layer.weight}"])
        h = at.u.mT @ a
        steps.append(Tangent(step * h, step * lowrank.project_out(at.u, a), step * b))
    state: c.Tensors = {}
    for layer, moved in zip(layers, lowrank.retract(points, steps), strict=True):
        state |= name_point(layer, lowrank.reorthonormalise(moved))
    return state
