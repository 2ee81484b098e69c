"""Hold local data, and models to test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.tensors import Tensors, take_rows
from otafl.core.renamed import Renamed

PredictFn = Callable[[Tensors, Tensor], Tensor]

MomentsFn = Callable[[Tensors, Tensor], Tensors]


@dataclass(frozen=True)
class FineTuneSpec(Renamed):
    """Ask for SGD steps that a device takes before its model is tested, and then forgets.

    Parameters
    ----------
    num_steps : on minibatches of its own training samples.
    learning_rate : [S], the step size.
    """

    num_steps: int
    learning_rate: Tensor


@dataclass(frozen=True)
class View(Renamed):
    """Show a model that is to be evaluated.

    Parameters
    ----------
    params : name -> [S, *shape] (owner "trial") or [S * K, *shape] (owner "device").
    predict_fn : (params [n, ...], x [n or 1, B, *input]) -> scores [n, B, classes], differentiable
        by the parameters where the model is fine-tuned.
    owner : whose models these are.
    fine_tune : each device tests its own fine-tuned copy.
    param_index : [S * K] int64, the row of the parameters that is each device's model, where many
        devices have the same; None: its own (owner "device").
    moments_fn : (params, x) -> blocks [n, *shape], statistics of batch normalisations on a batch of
        training samples. Their means over batches are added to the parameters that `predict_fn` is
        given, which without them uses the statistics of what it sees.
    """

    params: Tensors
    predict_fn: PredictFn
    owner: Literal["trial", "device"] = "trial"
    fine_tune: FineTuneSpec | None = None
    moments_fn: MomentsFn | None = None
    ensemble: Literal["mean", "mixture", "weighted_mean"] | None = None
    param_index: Tensor | None = None

    def get_param_rows(self, flat_index: Tensor) -> Tensor:
        """Return the rows of the parameters that are the models of devices, rows cells [n] of
        [S * K], where devices have models."""
        return flat_index if self.param_index is None else self.param_index[flat_index]

    def expand_per_device(self) -> View:
        """Return the view with a row for each device."""
        if self.param_index is None:
            return self
        params = {name: take_rows(block, self.param_index) for name, block in self.params.items()}
        return replace(self, params=params, param_index=None)


@dataclass(frozen=True)
class Batch:
    """Hold a minibatch of each row.

    Parameters
    ----------
    x : [n, B, *input].
    y : [n, B] int64 of classes, [n, B, outputs] of values, or [n, B, length] int64 of tokens.
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

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        """Return the minibatch of a local step; `draw_index` tells several independent ones of a
        step apart.
        """

    def load_full_batch(self) -> Batch:
        """Return all local data, padded to the longest row with weight 0."""

    def count_classes(self) -> Tensor:
        """Count the samples of each class, [n, classes]."""

    def count_samples(self) -> Tensor:
        """Count the samples, [n] int64."""

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, not values or tokens."""

    def take(self, row_index: Tensor) -> LocalData:
        """Return the local data of the named rows [n] int64, ordered by trial."""


@dataclass(frozen=True)
class Workload(Renamed):
    """Say what devices go through in a round's local work, by which its operations are counted.

    Parameters
    ----------
    num_steps : local steps.
    batch_size : samples of a minibatch.
    num_samples : that each device trains on, float of any shape.
    """

    num_steps: int
    batch_size: int
    num_samples: np.ndarray

    @property
    def effective_batch_size(self) -> np.ndarray:
        """Return the samples of each device's minibatch: all that it has, where these are fewer."""
        return np.minimum(self.num_samples, self.batch_size)

    def select_devices(self, flat_index: np.ndarray) -> Workload:
        """Return the load of the named devices [N] int64, counted trial by trial."""
        return replace(self, num_samples=self.num_samples.ravel()[flat_index])


@dataclass(frozen=True)
class Submodel(Renamed):
    """Describe a size that a method has models of.

    Parameters
    ----------
    ratio : of its width or rank to the whole's.
    num_params : how many it has.
    macs : multiplications of a forward pass of one sample.
    flops_fn : load -> operations of each device's local work.
    saved_activations : numbers that a sample leaves behind for the backward pass.
    """

    ratio: float
    num_params: int
    macs: int
    flops_fn: Callable[[Workload], np.ndarray]
    saved_activations: int = 0
