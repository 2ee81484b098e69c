"""Adapters as factors A and B: which of them the devices train, keep and send in each mode.

Tensors are "A.W" [.., r, M] and "B.W" [.., N, r] of the weight named W, and "R.W" [.., r, r]
between them. "base.W" [.., M, N] is the sum that the server has added to the frozen weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from otafl.algorithms.adapters.adapters import AdaptedLayer, Factors
from otafl.core import contracts as c
from otafl.core.rng import Streams, declare_family
from otafl.factorised.decomposition import svd

ADAPTERS = declare_family("adapters", __name__)

BASE = "base"
"""Beginning of the names of what the server has added to frozen weights."""

Mode = Literal["both", "freeze_a", "alternate", "square", "tangent", "share_a", "residual"]
"""Which factors of the adapters devices train and send."""

AStart = Literal["kaiming", "orthonormal"]
"""Start of A."""


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


def draw_factors(
    layers: Sequence[AdaptedLayer], streams: Streams, start: AStart, round: int = 0
) -> c.Tensors:
    r"""Draw A of each layer, and B = 0.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    streams : Streams
        Source of random numbers.
    start : {"kaiming", "orthonormal"}
        Kaiming's uniform start with a = sqrt(5), as in PEFT, or random orthonormal rows.
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
        purpose = ADAPTERS / layer.weight
        if start == "kaiming":
            draw = streams.draw_uniform(purpose, round, (layer.rank, layer.inputs))
            a = (2.0 * draw - 1.0) / layer.inputs**0.5
        else:
            draw = streams.draw_normal(purpose, round, (layer.inputs, layer.rank))
            a = torch.linalg.qr(draw)[0].mT.contiguous()
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
