"""Hold local data, and models to test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from torch import Tensor

from otafl.core.contracts.blocks import Tensors, taken
from otafl.core.contracts.cohort import Cohort

PredictFn = Callable[[Tensors, Tensor], Tensor]

MomentsFn = Callable[[Tensors, Tensor], Tensors]


@dataclass(frozen=True)
class FineTuneSpec:
    """Ask for SGD steps that a device takes before its model is tested, and then forgets.

    Parameters
    ----------
    steps : on minibatches of its own training samples.
    rate : [S], the step size.
    """

    steps: int
    rate: Tensor


@dataclass(frozen=True)
class View:
    """Show a model that is to be evaluated.

    Parameters
    ----------
    params : name -> [S, *shape] (owner "trial") or [S * K, *shape] (owner "device").
    predict : (params [n, ...], x [n or 1, B, *input]) -> scores [n, B, classes], differentiable by
        the parameters where the model is fine-tuned.
    owner : whose models these are.
    fine_tune : each device tests its own fine-tuned copy.
    whose : [S * K] int64, the row of the parameters that is each device's model, where many devices
        have the same; None: its own (owner "device").
    moments : (params, x) -> blocks [n, *shape], statistics of batch normalisations on a batch of
        training samples. Their means over batches are added to the parameters that `predict` is
        given, which without them uses the statistics of what it sees.
    """

    params: Tensors
    predict: PredictFn
    owner: Literal["trial", "device"] = "trial"
    fine_tune: FineTuneSpec | None = None
    moments: MomentsFn | None = None
    together: Literal["mean", "mixture"] | None = None
    whose: Tensor | None = None

    def rows(self, cells: Tensor) -> Tensor:
        """Return the rows of the parameters that are the models of devices, rows cells [n] of
        [S * K], where devices have models."""
        return cells if self.whose is None else self.whose[cells]

    def each(self) -> View:
        """Return the view with a row for each device."""
        if self.whose is None:
            return self
        params = {name: taken(block, self.whose) for name, block in self.params.items()}
        return replace(self, params=params, whose=None)


@dataclass(frozen=True)
class Batch:
    """Hold a minibatch of each row.

    Parameters
    ----------
    x : [n, B, *input].
    y : [n, B] int64.
    weight : [n, B], summing to one in a row; None for equal weights.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None


class LocalData(Protocol):
    """Give the local data of a chunk of cohort rows in one round."""

    round: int
    steps: int
    cohort: Cohort

    def batch(self, step: int, draw: int = 0) -> Batch:
        """Return the minibatch of a local step; `draw` tells several independent ones of a step
        apart.
        """

    def full(self) -> Batch:
        """Return all local data, padded to the longest row with weight 0."""

    def count_classes(self) -> Tensor:
        """Count the samples of each class, [n, classes]."""

    def take(self, rows: Tensor) -> LocalData:
        """Return the local data of the named rows [n] int64, ordered by trial."""


@dataclass(frozen=True)
class Workload:
    """Say what devices go through in a round's local work, by which its operations are counted.

    Parameters
    ----------
    steps : local steps.
    batch_size : samples of a minibatch.
    samples : that each device trains on, float of any shape.
    """

    steps: int
    batch_size: int
    samples: np.ndarray

    @property
    def batch(self) -> np.ndarray:
        """Return the samples of each device's minibatch: all that it has, where these are fewer."""
        return np.minimum(self.samples, self.batch_size)

    def of(self, cells: np.ndarray) -> Workload:
        """Return the load of the named devices [N] int64, counted trial by trial."""
        return replace(self, samples=self.samples.ravel()[cells])


@dataclass(frozen=True)
class Submodel:
    """Describe a size that a method has models of.

    Parameters
    ----------
    ratio : of its width or rank to the whole's.
    parameters : how many it has.
    macs : multiplications of a forward pass of one sample.
    flops : load -> operations of each device's local work.
    saved_activations : numbers that a sample leaves behind for the backward pass.
    """

    ratio: float
    parameters: int
    macs: int
    flops: Callable[[Workload], np.ndarray]
    saved_activations: int = 0
