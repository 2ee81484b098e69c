"""Payload groups of adapters: the coordinates of a device's rank, and the power of each group.

References
----------
Makkuva et al. 2024, "LASER: Linear Compression in Wireless Distributed Optimization", ICML.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.algorithms.adapters.adapters import AdaptedLayer
from otafl.algorithms.adapters.lora_settings import PowerSplit
from otafl.core import contracts as c

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
