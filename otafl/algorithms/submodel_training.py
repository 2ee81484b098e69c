"""Local training of methods with models of several sizes, the capacity levels.

The rows of one size are trained together, for any mix of sizes in a round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.settings import DataDisclosure, declare_stackable
from otafl.core.tensors import get_constant
from otafl.models.base import Shapes, differentiate
from otafl.models.layer_lists import iterate_layers
from otafl.models.layers import Linear
from otafl.models.network import Network

Penalty = Callable[[c.Tensors], Tensor]
"""Function of parameters [n, *shape] that returns a penalty [n] on the loss of each row."""

Ratio = Annotated[float, Field(gt=0, le=1)]
"""Number above 0 and at most 1."""


class LevelsSettings(settings.Settings):
    """Settings of methods with submodels; defaults as in FedHM, Table 4 and section 5.1."""

    learning_rate: float = declare_stackable(0.1, gt=0)
    """step size of local SGD in the first round"""
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """rounds at which the step size is multiplied by 0.1; none if not given"""
    momentum: float = declare_stackable(0.9, ge=0, lt=1)
    """momentum of local SGD, whose memory starts at zero in every round"""
    weight_decay: float = declare_stackable(1e-4, ge=0)
    """weight decay of local SGD on all parameters"""
    masked_loss: Annotated[
        bool, DataDisclosure(True, False, "which classes each device has samples of")
    ] = True
    """whether the scores of classes without samples at a device are 0 in its loss: masked
    loss (Diao et al. 2021, section 3); without effect if labels are values"""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """largest norm of a minibatch's gradient, to which longer ones are scaled; no bound if not
    given"""


def check_descending(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return the levels. Raises ValueError unless each is smaller than the one before."""
    if any(a <= b for a, b in itertools.pairwise(values)):
        got = ", ".join(f"{value:g}" for value in values)
        order = ", ".join(f"{value:g}" for value in sorted(set(values), reverse=True))
        raise ValueError(
            f"levels must decrease from the largest to the smallest; got {got}, use {order}"
        )
    return values


def make_submodels(
    ratios: Sequence[float],
    networks: Sequence[Network],
    flops: Callable[[int, c.Workload], np.ndarray],
    num_copies: Sequence[int] | None = None,
) -> tuple[c.Submodel, ...]:
    """Describe the networks of the levels.

    Parameters
    ----------
    ratios : sequence of float
        Size of each level relative to the largest.
    networks : sequence of Network
        Network of each level.
    flops : callable
        Function of level and workload that returns the operations of the local work.
    num_copies : sequence of int, optional
        Number of networks of each level; 1 if not given.

    Returns
    -------
    tuple of Submodel
        The submodels.
    """
    counts = [1] * len(networks) if num_copies is None else num_copies
    return tuple(
        c.Submodel(
            ratio=ratio,
            num_params=count * network.num_params,
            macs=count * network.macs,
            flops_fn=partial(flops, level),
            saved_activations=count * network.saved_activations,
            network=network,
        )
        for level, (ratio, network, count) in enumerate(zip(ratios, networks, counts, strict=True))
    )


def count_local_flops(
    network: Network, settings: LevelsSettings, workload: c.Workload
) -> np.ndarray:
    """Count the operations of `train_` and of the increment; the first step has no momentum.

    Parameters
    ----------
    network : Network
        Network of the devices.
    settings : LevelsSettings
        Settings.
    workload : Workload
        Steps, batch size and samples.

    Returns
    -------
    ndarray
        Operations, in the shape of `workload.num_samples`.
    """
    clipping = 3.0 if settings.clip_norm is not None else 0.0  # squares, their sum, the scaling
    each = 4.0 + clipping  # weight decay, the step
    elementwise = workload.num_steps * each + 2.0 * (workload.num_steps - 1) + 1.0
    return (
        workload.num_steps * network.count_training_flops(workload.effective_batch_size)
        + elementwise * network.num_params
    )


def broadcast_to_submodels(
    tensors: c.Tensors, cohort: c.Cohort, coordinates_per_level: Sequence[int]
) -> c.Broadcast:
    """Broadcast tensors of which a row needs only the part of its level.

    Parameters
    ----------
    tensors : dict of str to Tensor [S, *shape]
        Tensors of the largest model.
    cohort : Cohort
        Participants, N rows.
    coordinates_per_level : sequence of int
        Number of coordinates that devices of each level receive.

    Returns
    -------
    Broadcast
        The tensors, with the number of coordinates of each row.
    """
    return c.Broadcast(
        tensors, coordinates_per_row=select_by_level(coordinates_per_level, cohort, torch.int64)
    )


def select_by_level(
    values: Sequence[float], cohort: c.Cohort, dtype: torch.dtype | None = None
) -> Tensor:
    """Select the value of each row's level, [n], of a type that is by default the weights'."""
    level, dtype = cohort.capacity_level, dtype or cohort.weight.dtype
    return get_constant(tuple(values), dtype, level.device)[level]


def group_by_level(cohort: c.Cohort, num_levels: int) -> list[Tensor]:
    """List the rows int64 [n] of each level."""
    return [(cohort.capacity_level == level).nonzero().squeeze(1) for level in range(num_levels)]


def find_present_classes(local_data: c.LocalData, settings: LevelsSettings) -> Tensor | None:
    """Find the classes that rows have samples of, bool [n, classes]; None without a masked loss."""
    masked = settings.masked_loss and local_data.has_classes
    return local_data.count_classes() > 0 if masked else None


def train_(
    network: Network,
    params: c.Tensors,
    local_data: c.LocalData,
    settings: LevelsSettings,
    hyper: c.Hyper,
    penalty: Penalty | None = None,
    undecayed: Collection[str] = (),
) -> Tensor:
    """Take the local steps of all rows by SGD, in place.

    Momentum starts at zero. Step size, weight decay, masked loss and clipping follow the settings.

    Parameters
    ----------
    network : Network
        Network of the rows.
    params : dict of str to Tensor [n, *shape]
        Parameters, changed in place.
    local_data : LocalData
        Data of the rows.
    settings : LevelsSettings
        Settings.
    hyper : mapping of str to Tensor [S]
        Stackable settings.
    penalty : Penalty, optional
        Penalty added to the loss.
    undecayed : collection of str
        Parameters without weight decay.

    Returns
    -------
    Tensor [n]
        Mean loss over the steps, without the penalty.
    """
    trial = local_data.cohort.trial
    reached = sum(milestone <= int(local_data.round) for milestone in settings.milestones)
    rate = hyper["learning_rate"][trial] * 0.1**reached
    decay, momentum = hyper["weight_decay"][trial], hyper["momentum"][trial]
    present = find_present_classes(local_data, settings)
    velocity: c.Tensors = {}
    total = torch.zeros_like(rate)
    for step in range(local_data.steps):
        loss, grads = compute_gradients(
            network, params, local_data.draw_batch(step), present, penalty
        )
        total += loss
        for name, grad in grads.items():
            if name not in undecayed:
                grad.addcmul_(params[name], c.unsqueeze_like(decay, grad))
        if settings.clip_norm is not None:
            squares = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()])
            factor = (settings.clip_norm / squares.sum(0).sqrt().clamp_min(1e-30)).clamp_max(1.0)
            for grad in grads.values():
                grad.mul_(c.unsqueeze_like(factor, grad))
        for name, grad in grads.items():
            if name in velocity:
                grad.addcmul_(velocity[name], c.unsqueeze_like(momentum, grad))
            velocity[name] = grad
            params[name].addcmul_(grad, c.unsqueeze_like(rate, grad), value=-1.0)
    return total / local_data.steps


def compute_gradients(
    network: Network,
    params: c.Tensors,
    batch: c.Batch,
    present: Tensor | None,
    penalty: Penalty | None = None,
) -> tuple[Tensor, c.Tensors]:
    """Compute the gradients of loss and penalty.

    Parameters
    ----------
    network : Network
        Network of the rows.
    params : dict of str to Tensor [n, *shape]
        Parameters.
    batch : Batch
        Minibatch of each row.
    present : Tensor, bool [n, classes], optional
        Classes whose scores are not set to 0; all if None.
    penalty : Penalty, optional
        Penalty added to the loss.

    Returns
    -------
    Tensor [n]
        Loss without the penalty.
    dict of str to Tensor [n, *shape]
        Gradients.
    """

    def compute_objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
        scores = network.score_batch(leaves, batch)
        if present is not None:
            scores = scores * present.clone()[:, None]
        loss = network.loss.compute_mean(scores, batch)
        return loss, loss if penalty is None else loss + penalty(leaves)

    return differentiate(compute_objective, params, batch)


def find_classifier(network: Network) -> frozenset[str]:
    """Find the parameters whose last axis is the classes."""
    return frozenset(
        f"{step.name}.{part}"
        for step in iterate_layers(network.layers)
        if isinstance(step, Linear) and step.last
        for part in ("weight", "bias")
    )


def spread_mask(shapes: Shapes, known: Mapping[str, Tensor], one: Tensor) -> c.Tensors:
    """Spread a mask of last sides, such as classes, over whole parameters.

    Parameters
    ----------
    shapes : dict of str to tuple of int
        Shapes of the parameters.
    known : dict of str to Tensor [n, last side]
        Mask of the last side, of parameters that are not known completely.
    one : Tensor [n]
        Mask of all other parameters.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        The masks.
    """
    out = {}
    for name, shape in shapes.items():
        last = known.get(name, one[:, None])
        out[name] = last.view(len(one), *[1] * (len(shape) - 1), last.shape[1]).expand(-1, *shape)
    return out
