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
from otafl.core.constants import constant
from otafl.core.settings import Reveals, stackable
from otafl.models.base import by_autograd, cross_entropy
from otafl.models.network import Network
from otafl.models.steps import Linear, each_step

Penalty = Callable[[c.Tensors], Tensor]
"""Parameters [n, *shape] -> [n], added to the loss of each row."""

Ratio = Annotated[float, Field(gt=0, le=1)]


class LevelsSettings(settings.Settings):
    """Hold what every method has whose devices train models of different size; defaults as in
    FedHM, Table 4 and section 5.1."""

    learning_rate: float = stackable(0.1, gt=0)
    """SGD step of the first round"""
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """rounds from which on the step is decay_factor times what it was"""
    decay_factor: float = Field(0.1, gt=0, le=1)
    """of the step at a milestone"""
    momentum: float = stackable(0.9, ge=0, lt=1)
    """of local SGD; its memory starts at zero in every round"""
    weight_decay: float = stackable(1e-4, ge=0)
    """of local SGD, on all parameters"""
    masked_loss: Annotated[
        bool, Reveals(True, False, "which classes each device has samples of")
    ] = True
    """masked cross-entropy: the scores of classes that a device has no samples of are 0 in its loss
    (Diao et al. 2021, section 3)"""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """largest norm of a minibatch's gradient; longer ones are shortened"""


def ratios(default: tuple[float, ...], description: str) -> tuple[float, ...]:
    """Declare the sizes, the largest first."""
    field: tuple[float, ...] = Field(default, min_length=1, description=description)
    return field


def levels_of(
    ratios: Sequence[float],
    networks: Sequence[Network],
    flops: Callable[[int, c.Workload], np.ndarray],
    copies: Sequence[int] | None = None,
) -> tuple[c.Submodel, ...]:
    """Return what the networks are as sizes. flops: the operations of a level's local work; copies:
    how many of each network a size has (1)."""
    counts = [1] * len(networks) if copies is None else copies
    return tuple(
        c.Submodel(
            ratio=ratio,
            parameters=count * network.size,
            macs=count * network.macs,
            flops=partial(flops, level),
            saved_activations=count * network.saved_activations,
        )
        for level, (ratio, network, count) in enumerate(zip(ratios, networks, counts, strict=True))
    )


def local_flops(network: Network, of: LevelsSettings, load: c.Workload) -> np.ndarray:
    """Return the operations of `train_` and of the increment; the first step has no momentum."""
    clipping = 3.0 if of.clip_norm is not None else 0.0  # squares, their sum, the shortening
    each = 4.0 + clipping  # weight decay, the step
    elementwise = load.steps * each + 2.0 * (load.steps - 1) + 1.0
    return load.steps * network.training_flops(load.batch) + elementwise * network.size


def sent_to_levels(blocks: c.Tensors, cohort: c.Cohort, reals: Sequence[int]) -> c.Broadcast:
    """Broadcast blocks of which a row gets as many numbers as `reals` says of its level."""
    level = cohort.level
    return c.Broadcast(
        blocks, coordinates_per_row=constant(tuple(reals), level.dtype, level.device)[level]
    )


def buckets(cohort: c.Cohort, levels: int) -> list[Tensor]:
    """List the rows [n] int64 of each level."""
    return [(cohort.level == level).nonzero().squeeze(1) for level in range(levels)]


def step_size(of: LevelsSettings, hyper: c.Hyper, round: int) -> Tensor:
    """Return learning_rate decay_factor^(milestones that the round has reached), [S]."""
    reached = sum(milestone <= round for milestone in of.milestones)
    return hyper["learning_rate"] * of.decay_factor**reached


def train_(
    network: Network,
    params: c.Tensors,
    work: c.LocalData,
    of: LevelsSettings,
    hyper: c.Hyper,
    penalty: Penalty | None = None,
    undecayed: Collection[str] = (),
) -> Tensor:
    """Take the local steps of all rows of `work` by SGD, parameters [n, *shape] in place: momentum
    that starts at zero, weight decay but on the `undecayed`, masked cross-entropy and clipping as
    the settings say. Returns the mean loss [n], the penalty left out."""
    trial = work.cohort.trial
    rate = step_size(of, hyper, work.round)[trial]
    decay, momentum = hyper["weight_decay"][trial], hyper["momentum"][trial]
    present = work.count_classes() > 0 if of.masked_loss else None
    velocity: c.Tensors = {}
    total = torch.zeros_like(rate)
    for step in range(work.steps):
        loss, grads = gradients(network, params, work.batch(step), present, penalty)
        total += loss
        for name, grad in grads.items():
            if name not in undecayed:
                grad.addcmul_(params[name], c.column(decay, grad))
        if of.clip_norm is not None:
            clip_(grads, of.clip_norm)
        for name, grad in grads.items():
            if name in velocity:
                grad.addcmul_(velocity[name], c.column(momentum, grad))
            velocity[name] = grad
            params[name].addcmul_(grad, c.column(rate, grad), value=-1.0)
    return total / work.steps


def gradients(
    network: Network,
    params: c.Tensors,
    batch: c.Batch,
    present: Tensor | None,
    penalty: Penalty | None = None,
) -> tuple[Tensor, c.Tensors]:
    """Return the loss [n] and the gradient [n, *shape] of loss and penalty. present: [n, classes]
    bool, whose scores are not taken as 0; None for all."""

    def objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
        scores = network.training_logits(leaves, batch.x, batch.weight)
        if present is not None:
            scores = scores * present.clone()[:, None]
        loss = cross_entropy(scores, batch)
        return loss, loss if penalty is None else loss + penalty(leaves)

    return by_autograd(objective, params, batch)


def clip_(grads: c.Tensors, norm: float) -> None:
    """Shorten rows whose gradient is longer than `norm` to it."""
    length = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0).sqrt()
    factor = (norm / length.clamp_min(1e-30)).clamp_max(1.0)
    for grad in grads.values():
        grad.mul_(c.column(factor, grad))


def classifier_of(network: Network) -> frozenset[str]:
    """Name the parameters whose last side is the classes."""
    return frozenset(
        f"{step.name}.{part}"
        for step in each_step(network.steps)
        if isinstance(step, Linear) and step.last
        for part in ("weight", "bias")
    )
