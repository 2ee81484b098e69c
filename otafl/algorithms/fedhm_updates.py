"""Make what FedHM's devices send of their models, and add up what arrived.

Of each low-rank layer the server needs sum_p w_p D_p, D_p = L'_p R'_p - L_p R_p being the change of
its product; of other parameters the sum of increments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.fedhm_layers import Cut, Layer
from otafl.algorithms.level_training import classifier_of
from otafl.core.contracts import MODEL, Cohort, Group, Received, Tensors, column
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Shapes, flatten, unflatten


def update(
    cut: Cut,
    level: int,
    rows: Tensor,
    first: Tensors,
    params: Tensors,
    frame: Tensors,
    present: Tensor | None,
) -> Group:
    """Return what the rows of a level send.

    Parameters
    ----------
    first, params : the rows' parameters before and after training, [n, *shape].
    frame : of a dense level that sends coordinates, the factors that it projects on, [n, *shape].
    present : [n, classes] bool, the classes that a row has samples of; None where it knows all.
    """
    if cut.sends == "factors":
        sent = {name: params[name] - block for name, block in first.items()}
        shapes, known = cut.networks[level].shapes, {}
    else:
        sent, shapes = _changes(cut, first, params, frame), cut.up
        known = _within_rank(cut, level, rows) if cut.sends == "tangent" else {}
    if present is None and not known:
        return Group({MODEL: flatten(sent)}, rows)
    if present is not None:
        known |= dict.fromkeys(classifier_of(cut.dense), present)
    return Group({MODEL: flatten(sent)}, rows, {MODEL: _mask(shapes, known, rows)})


def update_flops(cut: Cut, level: int) -> float:
    """Count the operations that make D_p or its coordinates of what a device of a level has
    trained; 0 where increments of factors are sent."""
    total = 0.0
    for name, layer in cut.layers.items() if cut.sends != "factors" else ():
        (a, b), rank = layer.sides, cut.ranks[name][level]
        dense = name in cut.networks[level].shapes
        if cut.sends == "tangent" and dense:
            total += truncation.coordinates_of_matrix_flops(a, b, rank)
        elif cut.sends == "tangent":
            total += truncation.coordinates_of_factors_flops(a, b, rank)
        elif not dense:
            total += 4.0 * a * b * rank  # the products before and after
    return total


def _changes(cut: Cut, first: Tensors, params: Tensors, frame: Tensors) -> Tensors:
    """Return increments of dense parameters; of low-rank layers D_p, or its coordinates."""
    out: Tensors = {}
    for name in cut.network.shapes:
        layer = cut.layers.get(name)
        if layer is not None and cut.sends == "tangent":
            both = _coordinates(layer, cut.width(layer), first, params, frame)
            out |= dict(zip(layer.pair, both, strict=True))
        elif layer is None or name in params:
            out[name] = params[name] - first[name]
        else:
            old, new = layer.factors(first), layer.factors(params)
            out[name] = layer.weights(new.product - old.product)
    return out


def _coordinates(
    layer: Layer, width: int, first: Tensors, params: Tensors, frame: Tensors
) -> Factors:
    """Return C [n, a, width] and E^T [n, b, width] of D_p, zeros beyond a device's rank."""
    if layer.weight in params:
        vectors = truncation.vectors(layer.factors(frame))
        change = layer.matrix(params[layer.weight] - first[layer.weight])
        c, e = truncation.coordinates_of_matrix(vectors, change)
    else:
        old, new = layer.factors(first), layer.factors(params)
        c, e = truncation.coordinates_of_factors(truncation.vectors(old), old, new)
    pad = (0, width - c.shape[2])
    return Factors(functional.pad(c, pad), functional.pad(e.mT, pad))


def _within_rank(cut: Cut, level: int, rows: Tensor) -> Tensors:
    """Return the coordinates that rows [n] of a level have, [n, width] bool."""
    out: Tensors = {}
    for name, layer in cut.layers.items():
        all_of = torch.arange(cut.width(layer), device=rows.device)
        some = (all_of < cut.ranks[name][level]).expand(len(rows), -1)
        out |= dict.fromkeys(layer.pair, some)
    return out


def _mask(shapes: Shapes, last: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Return a mask [n, P] bool over blocks side by side. last: of some blocks, what the n rows
    know of their last side, [n, shape[-1]]; of the others they know all."""
    every = torch.ones_like(rows, dtype=torch.bool)[:, None]
    blocks = {}
    for name, shape in shapes.items():
        known = last.get(name, every)
        spread = known.view(len(rows), *[1] * (len(shape) - 1), known.shape[1])
        blocks[name] = spread.expand(-1, *shape)
    return flatten(blocks)


def joined(groups: Sequence[Group]) -> Group:
    """Join the groups of all levels to one, rows in order."""
    order = torch.argsort(torch.cat([group.rows for group in groups if group.rows is not None]))
    sent = torch.cat([group.blocks[MODEL] for group in groups])[order]
    masks = [group.mask[MODEL] for group in groups if group.mask is not None]
    return Group({MODEL: sent}, mask={MODEL: torch.cat(masks)[order]} if masks else None)


def arrived(
    cut: Cut, received: Received, cohort: Cohort, rows_per_trial: Sequence[Tensor]
) -> list[Tensor]:
    """Return the weights [n] of each level's rows, 0 of those that are known to be lost."""
    out = []
    for level, rows in enumerate(rows_per_trial):
        own = cohort.weight[rows]
        if received.came is not None:
            factors = cut.sends == "factors"
            came = received.came[level if factors else 0]
            if came is not None:
                own = own * (came if factors else came[rows])
        out.append(own)
    return out


def superposed(cut: Cut, received: Received, total: Tensor) -> tuple[Tensors, Tensors]:
    """Return sum_p w_p x_p of all that came, and the weight of the devices that count in it: of
    coordinates also those of a smaller rank, as all have the first one. total: [S], of the
    weights."""
    mean, count = _means(received, 0, cut.up)
    moved = {n: block * count[n] * column(total, block) for n, block in mean.items()}
    known = {n: c[..., :1] if n in cut.frame else c for n, c in count.items()}
    return moved, {n: c * column(total, c) for n, c in known.items()}


def summed(
    cut: Cut,
    received: Received,
    cohort: Cohort,
    rows_per_trial: Sequence[Tensor],
    weight: Sequence[Tensor],
    levels: Tensor,
    old: Tensors,
) -> tuple[Tensors, Tensors]:
    """Return the same of factors, which are multiplied out, eq. (1).

    Parameters
    ----------
    rows_of, weight : of each level the rows, and their weights, [n].
    levels : [S, levels], the sums of the weights.
    old : the server's parameters and factors.
    """
    assert received.each is not None
    moved = {name: torch.zeros_like(old[name]) for name in cut.network.shapes}
    known = {name: torch.zeros_like(old[name]) for name in cut.network.shapes}
    for level, (rows, own) in enumerate(zip(rows_per_trial, weight, strict=True)):
        shapes, total = cut.networks[level].shapes, levels[:, level]
        mean, count = _means(received, level, shapes)
        for name in cut.network.shapes:
            if name in shapes:
                known[name] += count[name] * column(total, moved[name])
                moved[name] += mean[name] * count[name] * column(total, moved[name])
        low_rank = [layer for name, layer in cut.layers.items() if name not in shapes]
        if not (low_rank and len(rows)):
            continue
        first = cut.first(level, old)
        trial, each = cohort.trial[rows], unflatten(received.each[level][MODEL], shapes)
        for layer in low_rank:
            at, by = layer.factors(first), layer.factors(each)
            new = Factors(at.left[trial] + by.left, at.right[trial] + by.right)
            change = truncation.sum_of_products(new, own, trial, cohort.trials)
            change -= at.product * column(total, change)
            moved[layer.weight] += layer.weights(change)
            known[layer.weight] += column(total, moved[layer.weight])
    return moved, known


def _means(received: Received, group: int, shapes: Shapes) -> tuple[Tensors, Tensors]:
    """Return the means of a group's parameters, and the weights that arrived, ready to multiply
    them."""
    mean, weight = received.mean[group][MODEL], received.delivered_weight(group, MODEL)
    return unflatten(mean, shapes), unflatten(weight.expand_as(mean), shapes)
