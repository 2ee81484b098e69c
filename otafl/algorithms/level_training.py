"""Local training of methods that have models of several sizes: the rows of one size are one stack,
whatever mix of sizes takes part."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from otafl.algorithms.config_levels import LevelsConfig
from otafl.algorithms.parameters import column
from otafl.core.contracts import Batch, Blocks, Cohort, Hyper, Work
from otafl.models.base import cross_entropy
from otafl.models.network import Linear, Network, each_step

Penalty = Callable[[Blocks], Tensor]
"""Parameters [n, *shape] -> [n], added to the loss of each row."""


def buckets(cohort: Cohort, levels: int) -> list[Tensor]:
    """The rows [n] int64 of each level."""
    return [(cohort.level == level).nonzero().squeeze(1) for level in range(levels)]


def step_size(config: LevelsConfig, hyper: Hyper, round: int) -> Tensor:
    """[S]: learning_rate decay_factor^(milestones that the round has reached)."""
    reached = sum(milestone <= round for milestone in config.milestones)
    return hyper["learning_rate"] * config.decay_factor**reached


def train_(
    network: Network,
    params: Blocks,
    work: Work,
    config: LevelsConfig,
    hyper: Hyper,
    penalty: Penalty | None = None,
    undecayed: Collection[str] = (),
) -> Tensor:
    """SGD over the local steps of all rows of `work`, parameters [n, *shape] in place: momentum
    that starts at zero, weight decay but on the `undecayed`, masked cross-entropy and clipping as
    the settings say. Returns the mean loss [n], the penalty left out."""
    trial = work.cohort.trial
    rate = step_size(config, hyper, work.round)[trial]
    decay, momentum = hyper["weight_decay"][trial], hyper["momentum"][trial]
    present = work.class_counts() > 0 if config.masked_loss else None
    velocity: Blocks = {}
    total = torch.zeros_like(rate)
    for step in range(work.steps):
        loss, grads = gradients(network, params, work.batch(step), present, penalty)
        total += loss
        for name, grad in grads.items():
            if name not in undecayed:
                grad.addcmul_(params[name], column(decay, grad))
        if config.clip_norm is not None:
            clip_(grads, config.clip_norm)
        for name, grad in grads.items():
            if name in velocity:
                grad.addcmul_(velocity[name], column(momentum, grad))
            velocity[name] = grad
            params[name].addcmul_(grad, column(rate, grad), value=-1.0)
    return total / work.steps


def gradients(
    network: Network,
    params: Blocks,
    batch: Batch,
    present: Tensor | None,
    penalty: Penalty | None = None,
) -> tuple[Tensor, Blocks]:
    """Loss [n] and the gradient [n, *shape] of loss and penalty. present: [n, classes] bool, whose
    scores are not taken as 0; None for all."""
    with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        weight = None if batch.weight is None else batch.weight.clone()
        scores = network.training_logits(leaves, batch.x.clone(), weight)
        if present is not None:
            scores = scores * present.clone()[:, None]
        loss = cross_entropy(scores, Batch(batch.x, batch.y.clone(), weight))
        whole = loss if penalty is None else loss + penalty(leaves)
        grads = torch.autograd.grad(whole.sum(), list(leaves.values()))
    return loss.detach(), dict(zip(leaves, grads, strict=True))


def clip_(grads: Blocks, norm: float) -> None:
    """Rows whose gradient is longer than `norm` are shortened to it."""
    length = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0).sqrt()
    factor = (norm / length.clamp_min(1e-30)).clamp_max(1.0)
    for grad in grads.values():
        grad.mul_(column(factor, grad))


def classifier_of(network: Network) -> frozenset[str]:
    """Names of the parameters whose last side is the classes."""
    return frozenset(
        f"{step.name}.{part}"
        for step in each_step(network.steps)
        if isinstance(step, Linear) and step.last
        for part in ("weight", "bias")
    )
