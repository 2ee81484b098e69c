"""Updates of FedHM's devices, and their sum at the server.

For each low-rank layer the server needs sum_p w_p D_p, where D_p = L'_p R'_p - L_p R_p is the
change of its product. For other parameters it needs the sum of the increments.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.submodel_training import find_classifier, spread_mask
from otafl.algorithms.submodels.fedhm_layers import LowRankLayer, LowRankLayout
from otafl.core.contracts import MODEL, Cohort, Group, Received, Tensors, unsqueeze_like
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.base import Shapes, flatten, unflatten


def build_update(
    layout: LowRankLayout,
    capacity_level: int,
    rows: Tensor,
    start_params: Tensors,
    params: Tensors,
    frame: Tensors,
    present: Tensor | None,
) -> Group:
    """Build the payload group of the rows of a level.

    Parameters
    ----------
    layout : LowRankLayout
        Networks of all levels.
    capacity_level : int
        Level of the rows.
    rows : Tensor, int64 [n]
        Rows of the cohort.
    start_params, params : dict of str to Tensor [n, *shape]
        Parameters before and after training.
    frame : dict of str to Tensor [n, *shape]
        Factors on which a dense level projects, if it sends coordinates.
    present : Tensor, bool [n, classes], optional
        Classes of which a row has samples; all if None.

    Returns
    -------
    Group
        The update, with a mask for unknown coordinates.
    """
    known: Tensors = {}
    if layout.sends == "factors":
        sent = {name: params[name] - block for name, block in start_params.items()}
        shapes = layout.networks[capacity_level].shapes
    else:
        # increments of dense parameters, and D_p or its coordinates of low-rank layers
        sent, shapes = {}, layout.uplink_shapes
        for name in layout.dense.shapes:
            layer = layout.layers.get(name)
            if layer is not None and layout.sends == "tangent":
                both = _compute_coordinates(
                    layer, layout.get_frame_rank(layer), start_params, params, frame
                )
                sent |= dict(zip(layer.pair, both, strict=True))
            elif layer is None or name in params:
                sent[name] = params[name] - start_params[name]
            else:
                old, new = layer.get_factors(start_params), layer.get_factors(params)
                sent[name] = layer.from_matrix(new.product - old.product)
        # the coordinates that rows [n] of a level have, bool [n, width]
        for name, layer in layout.layers.items() if layout.sends == "tangent" else ():
            all_of = torch.arange(layout.get_frame_rank(layer), device=rows.device)
            some = (all_of < layout.ranks[name][capacity_level]).expand(len(rows), -1)
            known |= dict.fromkeys(layer.pair, some)
    if present is None and not known:
        return Group({MODEL: flatten(sent)}, rows)
    if present is not None:
        known |= dict.fromkeys(find_classifier(layout.dense), present)
    mask = spread_mask(shapes, known, torch.ones_like(rows, dtype=torch.bool))
    return Group({MODEL: flatten(sent)}, rows, {MODEL: flatten(mask)})


def count_update_flops(layout: LowRankLayout, capacity_level: int) -> float:
    """Count the operations that compute D_p or its coordinates after training.

    These are 0 for increments of factors.
    """
    total = 0.0
    for name, layer in layout.layers.items() if layout.sends != "factors" else ():
        (a, b), rank = layer.sides, layout.ranks[name][capacity_level]
        dense = name in layout.networks[capacity_level].shapes
        if layout.sends == "tangent" and dense:
            total += truncation.count_matrix_coordinates_flops(a, b, rank)
        elif layout.sends == "tangent":
            total += truncation.count_factor_coordinates_flops(a, b, rank)
        elif not dense:
            total += 4.0 * a * b * rank  # the products before and after
    return total


def _compute_coordinates(
    layer: LowRankLayer, width: int, start_params: Tensors, params: Tensors, frame: Tensors
) -> Factors:
    """Compute C [n, a, width] and E^T [n, b, width] of D_p, with zeros beyond a device's rank."""
    if layer.weight in params:
        vectors = truncation.compute_singular_vectors(layer.get_factors(frame))
        change = layer.to_matrix(params[layer.weight] - start_params[layer.weight])
        c, e = truncation.compute_matrix_coordinates(vectors, change)
    else:
        old, new = layer.get_factors(start_params), layer.get_factors(params)
        c, e = truncation.compute_factor_coordinates(
            truncation.compute_singular_vectors(old), old, new
        )
    pad = (0, width - c.shape[2])
    return Factors(functional.pad(c, pad), functional.pad(e.mT, pad))


def join_groups(groups: Sequence[Group]) -> Group:
    """Join the groups of all levels, with rows in order."""
    order = torch.argsort(
        torch.cat([group.row_index for group in groups if group.row_index is not None])
    )
    sent = torch.cat([group.tensors[MODEL] for group in groups])[order]
    masks = [group.mask[MODEL] for group in groups if group.mask is not None]
    return Group({MODEL: sent}, mask={MODEL: torch.cat(masks)[order]} if masks else None)


def compute_delivered_weights(
    layout: LowRankLayout, received: Received, cohort: Cohort, rows_per_trial: Sequence[Tensor]
) -> list[Tensor]:
    """Compute the weights of each level's rows, 0 for those that are known to be lost.

    Parameters
    ----------
    layout : LowRankLayout
        Networks of all levels.
    received : Received
        Aggregates.
    cohort : Cohort
        Rows that transmit.
    rows_per_trial : sequence of Tensor, int64 [n]
        Rows of each level.

    Returns
    -------
    list of Tensor [n]
        Weights of the rows of each level.
    """
    out, masks = [], received.delivered_mask
    for level, rows in enumerate(rows_per_trial):
        own, factors = cohort.weight[rows], layout.sends == "factors"
        delivered = None if masks is None else masks[level if factors else 0]
        if delivered is not None:
            own = own * (delivered if factors else delivered[rows])
        out.append(own)
    return out


def sum_superposed(
    layout: LowRankLayout, received: Received, total: Tensor
) -> tuple[Tensors, Tensors]:
    """Compute the sum of superposed updates, and the weight behind each coordinate.

    Parameters
    ----------
    layout : LowRankLayout
        Networks of all levels.
    received : Received
        Aggregates.
    total : Tensor [S]
        Sum of the weights.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        sum_p w_p x_p over the delivered updates.
    dict of str to Tensor [S, *shape]
        Weight of the devices that count in it. For tangent coordinates this includes devices of a
        smaller rank, as all devices have the first one.
    """
    mean, count = _get_means(received, 0, layout.uplink_shapes)
    moved = {n: block * count[n] * unsqueeze_like(total, block) for n, block in mean.items()}
    known = {n: c[..., :1] if n in layout.frame else c for n, c in count.items()}
    return moved, {n: c * unsqueeze_like(total, c) for n, c in known.items()}


def sum_factors(
    layout: LowRankLayout,
    received: Received,
    cohort: Cohort,
    rows_per_trial: Sequence[Tensor],
    weight: Sequence[Tensor],
    num_levels: Tensor,
    old: Tensors,
) -> tuple[Tensors, Tensors]:
    """Compute the same sums from factors, whose products the server forms, eq. (1).

    Parameters
    ----------
    layout : LowRankLayout
        Networks of all levels.
    received : Received
        Updates of each device.
    cohort : Cohort
        Rows that transmit.
    rows_per_trial : sequence of Tensor, int64 [n]
        Rows of each level.
    weight : sequence of Tensor [n]
        Weights of the rows of each level.
    num_levels : Tensor [S, levels]
        Sum of the weights of each level.
    old : dict of str to Tensor [S, *shape]
        Parameters and factors of the server.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Sums, as of `sum_superposed`.
    dict of str to Tensor [S, *shape]
        Weights, as of `sum_superposed`.
    """
    assert received.per_device is not None
    moved = {name: torch.zeros_like(old[name]) for name in layout.dense.shapes}
    known = {name: torch.zeros_like(old[name]) for name in layout.dense.shapes}
    for level, (rows, own) in enumerate(zip(rows_per_trial, weight, strict=True)):
        shapes, total = layout.networks[level].shapes, num_levels[:, level]
        mean, count = _get_means(received, level, shapes)
        for name in layout.dense.shapes:
            if name in shapes:
                known[name] += count[name] * unsqueeze_like(total, moved[name])
                moved[name] += mean[name] * count[name] * unsqueeze_like(total, moved[name])
        low_rank = [layer for name, layer in layout.layers.items() if name not in shapes]
        if not (low_rank and len(rows)):
            continue
        first = layout.truncate_to_level(level, old)
        trial, each = cohort.trial[rows], unflatten(received.per_device[level][MODEL], shapes)
        for layer in low_rank:
            at, by = layer.get_factors(first), layer.get_factors(each)
            new = Factors(at.left[trial] + by.left, at.right[trial] + by.right)
            change = truncation.sum_products(new, own, trial, cohort.num_trials)
            change -= at.product * unsqueeze_like(total, change)
            moved[layer.weight] += layer.from_matrix(change)
            known[layer.weight] += unsqueeze_like(total, moved[layer.weight])
    return moved, known


def _get_means(received: Received, group: int, shapes: Shapes) -> tuple[Tensors, Tensors]:
    """Return the means of a group's parameters, and their delivered weights in matching shapes."""
    mean, weight = received.mean[group][MODEL], received.delivered_weight(group, MODEL)
    return unflatten(mean, shapes), unflatten(weight.expand_as(mean), shapes)
