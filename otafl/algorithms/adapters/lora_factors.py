"""Factors of LoRA: which of them devices train, keep and send in each mode, and how.

Tensors are "A.W" [.., r, M] and "B.W" [.., N, r] of the weight named W, and "R.W" [.., r, r]
between them. "base.W" [.., M, N] is the sum that the server has added to the frozen weight.

In mode tangent the frozen weight is W - U S V^T, without its best low-rank part, as in PiSSA.
Devices train coordinates a and b at U S V^T + a V^T + U b^T as in FedRLR+, and the server retracts
the mean to rank r. Increments add exactly. Tensors are "U.W" [.., M, r], "S.W" [.., r] and "V.W"
[.., N, r], and "a.W" and "b.W".

References
----------
Meng, Wang, Zhang 2024, "PiSSA: Principal Singular Values and Singular Vectors Adaptation of Large
    Language Models", NeurIPS.
Makkuva et al. 2024, "LASER: Linear Compression in Wireless Distributed Optimization", ICML.
Singhal et al. 2025, "FedEx-LoRA: Exact Aggregation for Federated and Efficient Fine-Tuning of Large
    Language Models", ACL.
Wang et al. 2024, "FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
    Adaptations", NeurIPS.
Bai et al. 2024, "Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and
    Client Resources" (FlexLoRA), NeurIPS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from otafl.algorithms.adapters.adapters import (
    AdaptedLayer,
    Factors,
    compute_product,
    to_matrix,
    to_weight,
)
from otafl.algorithms.deliveries import compute_delivered_shares, sum_rows
from otafl.core import contracts as c
from otafl.core.rng import Round, Streams, declare_family
from otafl.factorised import lowrank
from otafl.factorised.decomposition import svd
from otafl.factorised.lowrank import LowRank

ADAPTERS = declare_family("adapters", __name__)

BASE = "base"
"""Beginning of the names of what the server has added to frozen weights."""

Mode = Literal["both", "freeze_a", "alternate", "square", "tangent", "share_a", "residual"]
"""Which factors of the adapters devices train and send."""

PowerSplit = Literal["symbol", "equal", "norm", "laser"]
"""Division of a device's energy between A and B."""

Aggregate = Literal["zero_padding", "stacking", "svd", "dense"]
"""Aggregation of adapters at the server."""

LEAST_SHARE = 0.01
"""Least share of the energy that a group gets, so that a group of zeros has a power."""


class Roles(NamedTuple):
    """Places of the tensors of a mode, by the letters that begin their names.

    Parameters
    ----------
    shared : str
        Those of the server, which devices receive.
    fixed : str
        Those that server and devices know from the start.
    own : str
        Those that a device keeps.
    trained : str
        Those that a device trains.
    sent : str
        Those that a device sends, as a payload group each.
    """

    shared: str
    fixed: str = ""
    own: str = ""
    trained: str = ""
    sent: str = ""


ROLES: Mapping[Mode, Roles] = {
    "both": Roles(shared="AB", trained="AB", sent="AB"),
    "residual": Roles(shared="AB", trained="AB", sent="AB"),
    "freeze_a": Roles(shared="B", fixed="A", trained="B", sent="B"),
    "share_a": Roles(shared="A", own="B", trained="AB", sent="A"),
    "square": Roles(shared="R", fixed="AB", trained="R", sent="R"),
    "tangent": Roles(shared="USV", trained="ab", sent="ab"),
}


def get_roles(mode: Mode, round: Round) -> Roles:
    """Return the places of a mode's tensors in a round; `alternate` sends B in even rounds."""
    if mode != "alternate":
        return ROLES[mode]
    part = "A" if int(round) % 2 else "B"
    return Roles(shared="AB", trained=part, sent=part)


def select(tensors: c.Tensors, parts: str, layers: Sequence[AdaptedLayer]) -> c.Tensors:
    """Return the tensors of all layers whose names begin with one of the letters, in order."""
    names = (f"{part}.{layer.weight}" for part in parts for layer in layers)
    return {name: tensors[name] for name in names}


def draw_factors(layers: Sequence[AdaptedLayer], streams: Streams, round: int = 0) -> c.Tensors:
    r"""Draw A of each layer by Kaiming's uniform start with a = sqrt(5), as in PEFT, and B = 0.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    streams : Streams
        Source of random numbers.
    round : int
        Round of the draw.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        The factors.

    Notes
    -----
    Kaiming's start is uniform in

    .. math::

        \pm \sqrt{\frac{6}{(1 + a^2) M}} = \pm \frac{1}{\sqrt{M}}
    """
    factors: c.Tensors = {}
    for layer in layers:
        sides = (layer.rank, layer.inputs)
        draw = streams.draw_uniform(ADAPTERS / layer.weight, round, sides)
        a = (2.0 * draw - 1.0) / layer.inputs**0.5
        factors[f"A.{layer.weight}"] = a
        factors[f"B.{layer.weight}"] = a.new_zeros(len(a), layer.outputs, layer.rank)
    return factors


def find_bases(layers: Sequence[AdaptedLayer], weights: c.Tensors) -> c.Tensors:
    """Find orthonormal A and B in the leading singular vectors of weights or their gradients.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    weights : dict of str to Tensor [S, *shape]
        Weights or gradients.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        A and B, and R = 0.
    """
    tensors: c.Tensors = {}
    for layer in layers:
        u, _, vt = svd(to_matrix(weights[layer.weight]), full_matrices=False)
        tensors[f"A.{layer.weight}"] = u[:, :, : layer.rank].mT.contiguous()
        tensors[f"B.{layer.weight}"] = vt[:, : layer.rank].mT.contiguous()
        tensors[f"R.{layer.weight}"] = u.new_zeros(len(u), layer.rank, layer.rank)
    return tensors


def compose_factors(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> Factors:
    """Return A and B of each layer, with B R instead of B where there is an R."""
    factors: Factors = {}
    for layer in layers:
        a, b = tensors[f"A.{layer.weight}"], tensors[f"B.{layer.weight}"]
        r = tensors.get(f"R.{layer.weight}")
        factors[layer.weight] = a, b if r is None else torch.bmm(b, r)
    return factors


def truncate_ranks(tensors: c.Tensors, ranks: Tensor) -> c.Tensors:
    """Set the part of factors beyond each row's rank to 0; ranks is int64 [n]."""
    out: c.Tensors = {}
    for name, block in tensors.items():
        side = 1 if name.startswith("A.") else 2
        kept = torch.arange(block.shape[side], device=block.device) < ranks[:, None]
        out[name] = block * kept.unsqueeze(3 - side)
    return out


def compute_known_fraction(
    layers: Sequence[AdaptedLayer], part: str, ranks: Tensor, dtype: torch.dtype
) -> Tensor:
    """Compute the share of the coordinates of A or B that ranks leave, [n] for int64 [n]."""
    sides = [layer.inputs if part == "A" else layer.outputs for layer in layers]
    each = list(zip(sides, layers, strict=True))
    known = torch.stack([side * ranks.clamp_max(layer.rank) for side, layer in each]).sum(0)
    return known.to(dtype) / sum(side * layer.rank for side, layer in each)


def compute_product_norms(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> Tensor:
    r"""Compute the Frobenius norm [n] of the products of all layers, from Gram matrices.

    Notes
    -----
    .. math::

        \|B A\|_F^2 = \mathrm{tr} \left( B^T B \, A A^T \right)
    """
    each = compose_factors(layers, tensors).values()
    square = [(torch.bmm(b.mT, b) * torch.bmm(a, a.mT)).sum((1, 2)) for a, b in each]
    return torch.stack(square).sum(0).clamp_min(0.0).sqrt()


def get_point(tensors: c.Tensors, layer: AdaptedLayer) -> LowRank:
    """Return the low-rank point of a layer."""
    return LowRank(*select(tensors, "USV", (layer,)).values())


def name_point(layer: AdaptedLayer, point: LowRank) -> c.Tensors:
    """Return the tensors of a layer's point by their names."""
    return {f"{part}.{layer.weight}": block for part, block in zip("USV", point, strict=True)}


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
        weight = params[layer.weight]
        point = lowrank.truncate(to_matrix(weight), layer.rank)
        points |= name_point(layer, point)
        rest[layer.weight] = weight - to_weight(lowrank.to_dense(point), tuple(weight.shape[1:]))
    return points, rest


def start_coordinates(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> c.Tensors:
    """Return coordinates a and b of zero at the points."""
    zero: c.Tensors = {}
    for layer in layers:
        u, _, v = get_point(tensors, layer)
        zero |= {f"a.{layer.weight}": torch.zeros_like(u), f"b.{layer.weight}": torch.zeros_like(v)}
    return zero


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
        steps.append(lowrank.make_tangent(at, step * a, step * b))
    state: c.Tensors = {}
    for layer, moved in zip(layers, lowrank.retract(points, steps), strict=True):
        state |= name_point(layer, lowrank.reorthonormalise(moved))
    return state


def compute_power_factors(parts: Sequence[c.Tensors], split: PowerSplit) -> list[Tensor | None]:
    r"""Compute the power of each of two factors, relative to the budget of a symbol.

    Parameters
    ----------
    parts : sequence of dict of str to Tensor [n, *shape]
        What the rows send of each factor.
    split : {"symbol", "equal", "norm", "laser"}
        Division of the energy.

    Returns
    -------
    list of Tensor [n], or of None
        Power factor of each factor; None for the same power of every symbol.

    Notes
    -----
    With the share s_A of the energy, and P_A and P_B coordinates,

    .. math::

        \frac{s_A (P_A + P_B)}{P_A}, \quad s_A = \frac{\|A\|^q}{\|A\|^q + \|B\|^q}

    with q = 0 for equal, 2 for norm and 1 for laser. A share is at least 0.01.
    """
    if split == "symbol":
        return [None] * len(parts)
    norms = [
        torch.stack([block.flatten(1).square().sum(1) for block in part.values()]).sum(0).sqrt()
        for part in parts
    ]
    exponent = {"equal": 0.0, "norm": 2.0, "laser": 1.0}[split]
    largest = torch.maximum(*norms).clamp_min(torch.finfo(norms[0].dtype).tiny)
    first, second = ((norm / largest).pow(exponent) for norm in norms)
    total = first + second
    share = torch.where(total > 0, first / total.clamp_min(1e-6), 0.5)
    share = share.clamp(LEAST_SHARE, 1.0 - LEAST_SHARE)
    sizes = [sum(block[0].numel() for block in part.values()) for part in parts]
    return [one * sum(sizes) / size for one, size in zip((share, 1.0 - share), sizes, strict=True)]


def aggregate_products(
    layers: Sequence[AdaptedLayer],
    start: c.Tensors,
    received: c.Received,
    aggregate: Aggregate,
    context: c.Context,
) -> tuple[c.Tensors, c.Tensors]:
    r"""Aggregate the products of the devices, which the server computes from their increments.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    start : dict of str to Tensor [n, *shape]
        Factors that each row started from: the server's own, truncated to the device's rank.
    received : Received
        Increments of A and B of each row, or with "dense" mean increments of the products.
    aggregate : {"zero_padding", "stacking", "svd", "dense"}
        Aggregation; zero_padding is that of mode residual.
    context : Context
        Rows, and the round, for the draw of a new A.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        New factors.
    dict of str to Tensor [S, M, N]
        What the product of the new factors lacks, by the name of the weight; empty with svd and
        dense, by which no frozen weight changes.

    Notes
    -----
    FedEx-LoRA adds the residual of the means to the frozen weight:

    .. math::

        W_0 \leftarrow W_0 + \frac{\alpha}{r} \left( \sum_k w_k B_k A_k - \sum_k w_k B_k
        \sum_k w_k A_k \right)
    """
    cohort, dense = context.cohort.transmitters, aggregate == "dense"
    weight = compute_delivered_shares(cohort.weight, received, () if dense else (0, 1), cohort)
    rows = start
    if not dense:
        assert received.per_device is not None
        sent = received.per_device[0] | received.per_device[1]
        rows = {name: block + sent[name] for name, block in start.items()}
    products = {
        name: sum_rows(compute_product(a, b), weight, cohort)
        for name, (a, b) in compose_factors(layers, rows).items()
    }
    if dense:
        moved = received.mean[0]
        products = {name: block + moved[f"product.{name}"] for name, block in products.items()}
    if dense or aggregate == "svd":
        # factorise products [S, M, N] by their leading singular vectors, with the values in B
        factors: c.Tensors = {}
        for layer in layers:
            u, s, vt = svd(products[layer.weight], full_matrices=False)
            r = min(layer.rank, s.shape[1])  # a rank above the smaller side leaves zeros
            a = u.new_zeros(len(u), layer.rank, layer.inputs)
            b = u.new_zeros(len(u), layer.outputs, layer.rank)
            a[:, :r], b[:, :, :r] = u[:, :, :r].mT, vt[:, :r].mT * s[:, None, :r]
            factors |= {f"A.{layer.weight}": a, f"B.{layer.weight}": b}
        return factors, {}
    if aggregate == "stacking":
        new = draw_factors(layers, context.streams, int(context.round) + 1)  # with B = 0
    else:
        new = {name: sum_rows(block, weight, cohort) for name, block in rows.items()}
    kept = compose_factors(layers, new)
    return new, {n: block - compute_product(*kept[n]) for n, block in products.items()}
