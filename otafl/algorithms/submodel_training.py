"""Hold what methods share that have models of several sizes, the levels.

The rows of one size are trained as one stack, whatever mix of sizes takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.constants import get_constant
from otafl.core.settings import DataDisclosure, declare_stackable
from otafl.models.base import differentiate
from otafl.models.layer_steps import Linear, iterate_steps
from otafl.models.network import Network

Penalty = Callable[[c.Tensors], Tensor]
"""Parameters [n, *shape] -> [n], added to the loss of each row."""

Ratio = Annotated[float, Field(gt=0, le=1)]


class LevelsSettings(settings.Settings):
    """Hold what every method has whose devices train models of different size; defaults as in
    FedHM, Table 4 and section 5.1."""

    learning_rate: float = declare_stackable(0.1, gt=0)
    """SGD step of the first round"""
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """rounds from which on the step is decay_factor times what it was"""
    decay_factor: float = Field(0.1, gt=0, le=1)
    """of the step at a milestone"""
    momentum: float = declare_stackable(0.9, ge=0, lt=1)
    """of local SGD; its memory starts at zero in every round"""
    weight_decay: float = declare_stackable(1e-4, ge=0)
    """of local SGD, on all parameters"""
    masked_loss: Annotated[
        bool, DataDisclosure(True, False, "which classes each device has samples of")
    ] = True
    """masked loss: the scores of classes that a device has no samples of are 0 in its loss (Diao et
    al. 2021, section 3); without effect where labels are values"""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """largest norm of a minibatch's gradient; longer ones are shortened"""


def declare_ratios(default: tuple[float, ...], description: str) -> tuple[float, ...]:
    """Declare the sizes, the largest first."""
    field: tuple[float, ...] = Field(default, min_length=1, description=description)
    return field


def make_submodels(
    ratios: Sequence[float],
    networks: Sequence[Network],
    flops: Callable[[int, c.Workload], np.ndarray],
    num_copies: Sequence[int] | None = None,
) -> tuple[c.Submodel, ...]:
    """Return what the networks are as sizes. flops: the operations of a level's local work; copies:
    how many of each network a size has (1)."""
    counts = [1] * len(networks) if num_copies is None else num_copies
    return tuple(
        c.Submodel(
            ratio=ratio,
            num_params=count * network.num_params,
            macs=count * network.macs,
            flops_fn=partial(flops, level),
            saved_activations=count * network.saved_activations,
        )
        for level, (ratio, network, count) in enumerate(zip(ratios, networks, counts, strict=True))
    )


def count_local_flops(
    network: Network, settings: LevelsSettings, workload: c.Workload
) -> np.ndarray:
    """Return the operations of `train_` and of the increment; the first step has no momentum."""
    clipping = 3.0 if settings.clip_norm is not None else 0.0  # squares, their sum, the shortening
    each = 4.0 + clipping  # weight decay, the step
    elementwise = workload.num_steps * each + 2.0 * (workload.num_steps - 1) + 1.0
    return (
        workload.num_steps * network.count_training_flops(workload.effective_batch_size)
        + elementwise * network.num_params
    )


def broadcast_to_submodels(
    tensors: c.Tensors, cohort: c.Cohort, coordinates_per_level: Sequence[int]
) -> c.Broadcast:
    """Broadcast tensors of which a row gets the `coordinates_per_level` of its level."""
    level = cohort.capacity_level
    return c.Broadcast(
        tensors,
        coordinates_per_row=get_constant(tuple(coordinates_per_level), level.dtype, level.device)[
            level
        ],
    )


def group_by_level(cohort: c.Cohort, num_levels: int) -> list[Tensor]:
    """List the rows [n] int64 of each level."""
    return [(cohort.capacity_level == level).nonzero().squeeze(1) for level in range(num_levels)]


def compute_step_size(settings: LevelsSettings, hyper: c.Hyper, round: int) -> Tensor:
    """Return learning_rate decay_factor^(milestones that the round has reached), [S]."""
    reached = sum(milestone <= round for milestone in settings.milestones)
    return hyper["learning_rate"] * settings.decay_factor**reached


def find_present_classes(local_data: c.LocalData, settings: LevelsSettings) -> Tensor | None:
    """Return the classes that rows have samples of, [n, classes] bool; None if no loss is
    masked."""
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
    """Take the local steps of all rows of `local_data` by SGD, parameters [n, *shape] in place:
    momentum that starts at zero, weight decay but on the `undecayed`, masked loss and
    clipping as the settings say. Returns the mean loss [n], the penalty left out."""
    trial = local_data.cohort.trial
    rate = compute_step_size(settings, hyper, local_data.round)[trial]
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
            clip_(grads, settings.clip_norm)
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
    """Return the loss [n] and the gradient [n, *shape] of loss and penalty. present: [n, classes]
    bool, whose scores are not taken as 0; None for all."""

    def compute_objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
        scores = network.training_logits(leaves, batch.x, batch.weight)
        if present is not None:
            scores = scores * present.clone()[:, None]
        loss = network.loss.compute_mean(scores, batch)
        return loss, loss if penalty is None else loss + penalty(leaves)

    return differentiate(compute_objective, params, batch)


def clip_(grads: c.Tensors, norm: float) -> None:
    """Shorten rows whose gradient is longer than `norm` to it."""
    length = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0).sqrt()
    factor = (norm / length.clamp_min(1e-30)).clamp_max(1.0)
    for grad in grads.values():
        grad.mul_(c.unsqueeze_like(factor, grad))


def find_classifier(network: Network) -> frozenset[str]:
    """Name the parameters whose last side is the classes."""
    return frozenset(
        f"{step.name}.{part}"
        for step in iterate_steps(network.steps)
        if isinstance(step, Linear) and step.last
        for part in ("weight", "bias")
    )
