"""Adapters as factors: which of them the devices train, keep and send in each mode, and how.

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.algorithms.adapters.adapters import AdaptedLayer, Factors, to_matrix, to_weight
from otafl.algorithms.adapters.lora_settings import PowerSplit
from otafl.core import contracts as c
from otafl.core.rng import Streams, declare_family
from otafl.factorised import lowrank
from otafl.factorised.decomposition import svd
from otafl.factorised.lowrank import LowRank

ADAPTERS = declare_family("adapters", __name__)

BASE = "base"
"""Beginning of the names of what the server has added to frozen weights."""


@dataclass(frozen=True)
class Roles:
    """Places of the tensors of a mode, by the beginnings of their names.

    Parameters
    ----------
    shared : tuple of str
        Those of the server, which devices receive.
    fixed : tuple of str
        Those that server and devices know from the start.
    own : tuple of str
        Those that a device keeps.
    trained : tuple of str
        Those that a device trains.
    sent : tuple of str
        Those that a device sends, as a payload group each.
    """

    shared: tuple[str, ...]
    fixed: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()


ROLES: Mapping[str, Roles] = {
    "both": Roles(shared=("A", "B"), trained=("A", "B"), sent=("A", "B")),
    "residual": Roles(shared=("A", "B"), trained=("A", "B"), sent=("A", "B")),
    "freeze_a": Roles(shared=("B",), fixed=("A",), trained=("B",), sent=("B",)),
    "share_a": Roles(shared=("A",), own=("B",), trained=("A", "B"), sent=("A",)),
    "square": Roles(shared=("R",), fixed=("A", "B"), trained=("R",), sent=("R",)),
}


def get_roles(mode: str, round: int) -> Roles:
    """Return the places of a mode's tensors in a round; `alternate` sends B in even rounds."""
    if mode != "alternate":
        return ROLES[mode]
    part = "A" if round % 2 else "B"
    return Roles(shared=("A", "B"), trained=(part,), sent=(part,))


def name_tensors(prefix: str, layers: Sequence[AdaptedLayer]) -> tuple[str, ...]:
    """Return the names of the tensors with a prefix, one for each layer."""
    return tuple(f"{prefix}.{layer.weight}" for layer in layers)


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


def find_bases(layers: Sequence[AdaptedLayer], matrices: c.Tensors) -> c.Tensors:
    """Find orthonormal A and B in the leading singular vectors of matrices [S, M, N], and R = 0."""
    tensors: c.Tensors = {}
    for layer in layers:
        u, _, vt = svd(matrices[layer.weight], full_matrices=False)
        tensors[f"A.{layer.weight}"] = u[:, :, : layer.rank].mT.contiguous()
        tensors[f"B.{layer.weight}"] = vt[:, : layer.rank].mT.contiguous()
        square = (len(u), layer.rank, layer.rank)
        tensors[f"R.{layer.weight}"] = u.new_zeros(square)
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
        if name.startswith("A."):
            kept = torch.arange(block.shape[1], device=block.device) < ranks[:, None]
            out[name] = block * kept[:, :, None]
        elif name.startswith("B."):
            kept = torch.arange(block.shape[2], device=block.device) < ranks[:, None]
            out[name] = block * kept[:, None]
        else:
            out[name] = block
    return out


def compute_product_norms(layers: Sequence[AdaptedLayer], tensors: c.Tensors) -> Tensor:
    r"""Compute the Frobenius norm [n] of the products of all layers, from Gram matrices.

    Notes
    -----
    .. math::

        \|B A\|_F^2 = \mathrm{tr} \left( B^T B \, A A^T \right)
    """
    total = torch.zeros((), device=next(iter(tensors.values())).device)
    for layer in layers:
        a, b = tensors[f"A.{layer.weight}"], tensors[f"B.{layer.weight}"]
        total = total + (torch.bmm(b.mT, b) * torch.bmm(a, a.mT)).sum((1, 2))
    return total.clamp_min(0.0).sqrt()


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
        steps.append(lowrank.make_tangent(at, step * a, step * b))
    state: c.Tensors = {}
    for layer, moved in zip(layers, lowrank.retract(points, steps), strict=True):
        state |= name_point(layer, lowrank.reorthonormalise(moved))
    return state


LEAST_SHARE = 0.01
"""Least share of the energy that a group gets, so that a group of zeros has a power."""

NORM = "norm"
"""Name of the tensor of a device's weight."""


def build_factor_groups(
    layers: Sequence[AdaptedLayer],
    parts: Sequence[c.Tensors],
    ranks: Tensor | None,
    split: PowerSplit,
    weight: Tensor | None,
) -> tuple[c.Group, ...]:
    """Build a group of each factor, and of the weights by which they are multiplied.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    parts : sequence of dict of str to Tensor [n, *shape]
        Increments of each factor, in all layers.
    ranks : Tensor, int64 [n], optional
        Rank of each row; the layers' if not given.
    split : PowerSplit
        Division of the energy between two factors.
    weight : Tensor [n], optional
        Weight of each row, which a group of its own sends; none if not given.

    Returns
    -------
    tuple of Group
        The groups.
    """
    weighted = [
        part if weight is None else {n: b * c.unsqueeze_like(weight, b) for n, b in part.items()}
        for part in parts
    ]
    powers = compute_power_factors(weighted, split)
    groups = [
        c.Group(
            part, known_fraction=_compute_known_fraction(layers, part, ranks), power_factor=power
        )
        for part, power in zip(weighted, powers, strict=True)
    ]
    return (*groups, *(() if weight is None else (c.Group({NORM: weight[:, None]}),)))


def _compute_known_fraction(
    layers: Sequence[AdaptedLayer], part: c.Tensors, ranks: Tensor | None
) -> Tensor | None:
    """Compute the share [n] of the coordinates of a group that the rows' ranks leave."""
    if ranks is None:
        return None
    known = torch.zeros_like(ranks, dtype=next(iter(part.values())).dtype)
    total = 0
    for layer in layers:
        for prefix, side in (("A", layer.inputs), ("B", layer.outputs)):
            if f"{prefix}.{layer.weight}" in part:
                known += side * ranks.clamp_max(layer.rank)
                total += side * layer.rank
    return known / total


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
    if split == "symbol" or len(parts) != 2:
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
