"""The contract of a robust aggregation rule.

A rule turns the n inputs of a trial (group means, or single updates) into one aggregate. Some of
them may come from attackers; the rule assumes at most a share of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.core.settings import Settings


@dataclass(frozen=True)
class Inputs:
    """The inputs of a rule, for S trials with at most n inputs of P coordinates each.

    Parameters
    ----------
    x : Tensor, float [S, n, P]
        Inputs, 0 where nothing was delivered.
    weight : Tensor, float [S, n, 1] or [S, n, P]
        Delivered weight of each input, out of 1; 0 of an input that was not delivered.
    num_corrupted : Tensor, int64 [S]
        Number f of the delivered inputs that a rule assumes to be corrupted.
    """

    x: Tensor
    weight: Tensor
    num_corrupted: Tensor

    @functools.cached_property
    def present_mask(self) -> Tensor:
        """The delivered coordinates, bool [S, n, 1] or [S, n, P]."""
        return self.weight > 0

    @functools.cached_property
    def whole_mask(self) -> Tensor:
        """The inputs of which a coordinate was delivered, bool [S, n]."""
        return self.present_mask.any(2)

    @functools.cached_property
    def num_inputs(self) -> Tensor:
        """The number of delivered inputs, int64 [S]."""
        return self.whole_mask.sum(1)

    @functools.cached_property
    def squared_distances(self) -> Tensor:
        """The squared distances between the inputs, float64 [S, n, n]."""
        x = self.x.double()
        return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()

    def compute_norms(self, x: Tensor) -> Tensor:
        """Compute the norms of vectors x [S, n, P] that belong to the inputs, [S, n]."""
        return torch.linalg.vector_norm(x, dim=2)

    def compute_median(self, values: Tensor) -> Tensor:
        """Compute the median [S] of a number [S, n] over the delivered inputs."""
        median = compute_median(values[..., None], self.whole_mask[..., None])
        return median[:, 0]

    def combine(self, coefficients: Tensor) -> Tensor:
        """Compute sum_i a_i x_i [S, P] of coefficients a [S, n]."""
        return torch.bmm(coefficients[:, None].to(self.x.dtype), self.x)[:, 0]


class Rule(Settings):
    """A robust rule. A rule is its settings, the section `robust.rule` of a scenario."""

    is_robust: ClassVar[bool] = True
    """The rule bounds what a corrupted input does; the mean does not, and goes with one sum."""

    example: ClassVar[Mapping[str, Any]] = {"robust.groups": "devices"}

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        """Write why the rule has no effect on n inputs of which f are corrupted; empty if it has.

        Parameters
        ----------
        num_inputs : int
            Number n of inputs.
        num_corrupted : int
            Number f of inputs that are assumed to be corrupted.

        Returns
        -------
        str
            What is wrong and what to use instead, without a subject.
        """
        return ""

    def init(self, x: Tensor) -> Tensors:
        """Return the rule's memory before the first round.

        Parameters
        ----------
        x : Tensor, float [S, P]
            Zeros in the shape of an aggregate.

        Returns
        -------
        dict of Tensor, float [S, ...]
            Memory, empty for a rule without.
        """
        return {}

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        """Compute the aggregate of the inputs.

        Parameters
        ----------
        inputs : Inputs
            The inputs of S trials.
        memory : dict of Tensor
            The memory, as `init` or the last call returned it.

        Returns
        -------
        tuple of Tensor, float [S, P], and dict of Tensor
            The aggregate, 0 where no input was delivered, and the memory after it.
        """
        raise NotImplementedError


def sort_inputs(x: Tensor, present_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each coordinate over the inputs, those that were not delivered last.

    Parameters
    ----------
    x : Tensor, float [S, n, P]
        Inputs.
    present_mask : Tensor, bool [S, n, 1] or [S, n, P]
        The delivered ones.

    Returns
    -------
    tuple of Tensor, float [S, n, P], and Tensor, int64 [S, 1, 1] or [S, 1, P]
        The sorted inputs, and how many were delivered.
    """
    ordered = x.where(present_mask, torch.inf).sort(1).values
    return ordered, present_mask.sum(1, keepdim=True)


def compute_median(x: Tensor, present_mask: Tensor) -> Tensor:
    """Compute the median of each coordinate over the delivered inputs.

    Of an even number it is the mean of the two in the middle.

    Parameters
    ----------
    x : Tensor, float [S, n, P]
        Inputs.
    present_mask : Tensor, bool [S, n, 1] or [S, n, P]
        The delivered ones.

    Returns
    -------
    Tensor, float [S, P]
        The median, 0 where no input was delivered.
    """
    ordered, count = sort_inputs(x, present_mask)
    middle = [((count - 1) // 2).clamp_min(0), count // 2]
    last = x.shape[1] - 1
    both = [ordered.gather(1, at.clamp_max(last).expand_as(ordered[:, :1])) for at in middle]
    median = (0.5 * both[0] + 0.5 * both[1])[:, 0]
    return torch.where(count[:, 0] > 0, median, 0.0)


def compute_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Compute the weighted mean [S, P] of inputs [S, n, P], 0 where no weight was delivered."""
    total = weight.sum(1)
    mean = (x * weight).sum(1) / total.clamp_min(torch.finfo(x.dtype).tiny)
    return torch.where(total > 0, mean, 0.0)
