"""Context of a round, local data, local work, submodels, and models for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.rng import Round, Streams
from otafl.core.tensors import Hyper, Tensors, take_rows

PredictFn = Callable[[Tensors, Tensor], Tensor]
"""Function of params [n, *shape] and samples [n or 1, B, *input], with scores [n, B, classes]."""

MomentsFn = Callable[[Tensors, Tensor], Tensors]
"""Function of params [n, *shape] and samples that returns statistics of batch normalisations."""


@dataclass(frozen=True)
class FineTuneSpec:
    """SGD steps that a device takes on a copy of its model before the test.

    Parameters
    ----------
    num_steps : int
        Number of steps, on minibatches of the device's own training samples.
    learning_rate : Tensor [S]
        Step size.
    """

    num_steps: int
    learning_rate: Tensor


@dataclass(frozen=True)
class View:
    """A model to evaluate.

    Parameters
    ----------
    params : dict of str to Tensor
        Parameters [S, *shape] for the owner "trial", [S * K, *shape] for the owner "device".
    predict_fn : PredictFn
        Function of params [n, ...] and samples [n or 1, B, *input] that returns scores [n, B,
        classes]. It is differentiable by the parameters if the model is fine-tuned.
    owner : {"trial", "device"}
        Whether there is one model for each trial or one for each device.
    fine_tune : FineTuneSpec, optional
        Steps of fine-tuning before the test; none if not given.
    moments_fn : MomentsFn, optional
        Function of params and samples that returns statistics [n, *shape] of batch normalisations
        on a batch of training samples. The evaluation adds their means over batches to the
        parameters that it gives to `predict_fn`. Without them `predict_fn` uses the statistics of
        its own batch.
    ensemble : {"mean", "mixture"}, optional
        How the model combines predictions of several members, if it is an ensemble.
    param_index : Tensor, int64 [S * K], optional
        Row of the parameters that is each device's model, if many devices have the same model. If
        not given, each device has its own row (owner "device").
    saved_fn : callable, optional
        Function without arguments that returns the view of which a PyTorch module is made, if the
        model is evaluated in another form. Tensors "base.NAME" [n, *shape] in it are weights
        without what low-rank adapters have added.
    """

    params: Tensors
    predict_fn: PredictFn
    owner: Literal["trial", "device"] = "trial"
    fine_tune: FineTuneSpec | None = None
    moments_fn: MomentsFn | None = None
    ensemble: Literal["mean", "mixture", "weighted_mean"] | None = None
    param_index: Tensor | None = None
    saved_fn: Callable[[], View] | None = None

    def get_param_rows(self, flat_index: Tensor) -> Tensor:
        """Return the rows of the parameters that are the models of devices.

        Parameters
        ----------
        flat_index : Tensor, int64 [n]
            Devices, as rows of [S * K].

        Returns
        -------
        Tensor, int64 [n]
            Rows of the parameters, for the owner "device".
        """
        return flat_index if self.param_index is None else self.param_index[flat_index]

    def expand_per_device(self) -> View:
        """Return the view with a row of parameters for each device."""
        if self.param_index is None:
            return self
        params = {name: take_rows(block, self.param_index) for name, block in self.params.items()}
        return replace(self, params=params, param_index=None)


@dataclass(frozen=True)
class Batch:
    """A minibatch of each row.

    Parameters
    ----------
    x : Tensor [n, B, *input]
        Samples.
    y : Tensor
        Labels: classes int64 [n, B], values [n, B, outputs], or tokens int64 [n, B, length].
    weight : Tensor [n, B], optional
        Weights of the samples, with sum one in a row; equal weights if None.
    keys : Tensor, int64 [n], optional
        Keys of the rows for layers that draw random numbers in training, as dropout does. Without
        them such layers draw none.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None
    keys: Tensor | None = None


class Samples(NamedTuple):
    """Minibatches of all local steps, by the indices of their samples.

    Parameters
    ----------
    x : Tensor [N, M]
        Samples of all devices.
    y : Tensor, int64 [N]
        Their classes.
    rows : Tensor, int64 [T, n, B]
        Samples of each step and device, as rows of `x`.
    weight : Tensor [T, n, B], or [1, n, B] for all steps, optional
        Weights of the samples, with sum one in a minibatch; equal weights if None.
    """

    x: Tensor
    y: Tensor
    rows: Tensor
    weight: Tensor | None


class LocalData(Protocol):
    """Local data of the rows of a chunk in one round.

    All rows of a chunk take the same number of local steps, `steps`. Rows with other numbers of
    steps, which `training.local_epochs` gives, are in other chunks.
    """

    round: Round
    steps: int
    batch_size: int
    cohort: Cohort

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        """Draw the minibatch of a local step.

        Parameters
        ----------
        step : int
            Index of the local step.
        draw_index : int
            Index among several independent minibatches of one step.

        Returns
        -------
        Batch
            The minibatch of each row.
        """

    def list_samples(self) -> Samples | None:
        """List the samples of the minibatches of all steps, those of `draw_batch`.

        None if minibatches are not mere rows of the data set with classes, each a draw of its own.
        """

    def load_full_batch(self) -> Batch:
        """Return all local data, padded to the longest row with weight 0."""

    def draw_keys(self, step: int, draw_index: int = 0) -> Tensor | None:
        """Draw the keys [n] of a step for layers that draw; None if the model has none."""

    def count_classes(self) -> Tensor:
        """Count the samples of each class, [n, classes]."""

    def count_samples(self) -> Tensor:
        """Count the samples, [n] int64."""

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, not values or tokens."""

    def flip_labels(self, mask: Tensor) -> LocalData:
        """Return the local data with class C - 1 - y in place of y in the rows of a mask [n]."""

    def take(self, row_index: Tensor) -> LocalData:
        """Return the local data of the selected rows, int64 [n], ordered by trial."""


def count_epoch_steps(num_samples: np.ndarray, batch_size: int, num_epochs: int) -> np.ndarray:
    """Count the local steps of passes over all samples, E ceil(n / B).

    Parameters
    ----------
    num_samples : ndarray, any shape
        Number of samples of each device, n.
    batch_size : int
        Samples of a minibatch, B.
    num_epochs : int
        Number of passes, E.

    Returns
    -------
    ndarray of float, same shape
        Number of steps. The last minibatch of a pass has the samples that are left.
    """
    steps: np.ndarray = num_epochs * np.ceil(np.asarray(num_samples) / batch_size)
    return steps


@dataclass(frozen=True)
class Workload:
    """Size of the local work of devices in a round, from which its operations are counted.

    Parameters
    ----------
    num_steps : int or ndarray of float
        Number of local steps. With `num_epochs` it is computed, in the shape of `num_samples`.
    batch_size : int
        Samples of a minibatch.
    num_samples : ndarray of float, any shape
        Number of samples that each device trains on.
    num_epochs : int, optional
        Passes of each device over its samples, if the local work is given in epochs.
    """

    num_steps: int | np.ndarray
    batch_size: int
    num_samples: np.ndarray
    num_epochs: int | None = None

    def __post_init__(self) -> None:
        """Compute the steps of the epochs."""
        if self.num_epochs is not None:
            steps = count_epoch_steps(self.num_samples, self.batch_size, self.num_epochs)
            object.__setattr__(self, "num_steps", steps)

    @property
    def effective_batch_size(self) -> np.ndarray:
        """The samples of each device's minibatch, in the mean over its local steps.

        They are all samples of the device, if these are fewer than a minibatch. The last minibatch
        of an epoch can be shorter than the others.
        """
        if self.num_epochs is not None:
            return self.num_epochs * self.num_samples / self.num_steps
        return np.minimum(self.num_samples, self.batch_size)

    def select_devices(self, flat_index: np.ndarray) -> Workload:
        """Return the workload of the selected devices, int64 [N], as rows of [S * K]."""
        return replace(self, num_samples=self.num_samples.ravel()[flat_index])


@dataclass(frozen=True)
class Submodel:
    """A submodel of a method with several capacity levels.

    Parameters
    ----------
    ratio : float
        Width or rank relative to the largest model.
    num_params : int
        Number of parameters.
    macs : int
        Multiply-accumulate operations of a forward pass of one sample.
    flops_fn : callable
        Function of a workload that returns the operations of each device's local work.
    saved_activations : int
        Number of activations of a sample that the backward pass needs.
    network : Model, optional
        Model that the parameters of the level's view belong to; the method's if not given.
    """

    ratio: float
    num_params: int
    macs: int
    flops_fn: Callable[[Workload], np.ndarray]
    saved_activations: int = 0
    network: Any = None


@dataclass(frozen=True)
class Context:
    """Participants, hyperparameters, random streams and index of a round.

    Parameters
    ----------
    cohort : Cohort
        The N rows, of the round or of a chunk.
    hyper : mapping of str to Tensor [S]
        Stackable settings of the method.
    streams : Streams
        Source of random numbers.
    round : int, or Tensor, int64 []
        Index of the round, from 0. It may be a tensor in local work on a GPU, so that work for
        which the host decides by it (`int(context.round)`) is slower there.
    count_steps_fn : callable, optional
        Function that returns the local steps [N] of each row, for a server, which knows them from
        the numbers of samples.
    """

    cohort: Cohort
    hyper: Hyper
    streams: Streams
    round: Round
    count_steps_fn: Callable[[], Tensor] | None = field(default=None, kw_only=True)

    def gather_hyper(self, name: str) -> Tensor:
        """Return a stackable setting for each row.

        Parameters
        ----------
        name : str
            Name of the setting.

        Returns
        -------
        Tensor [N]
            The value of the row's trial.
        """
        return self.hyper[name][self.cohort.trial]


@dataclass(frozen=True)
class LocalContext(Context):
    """Context of local work, with the data of the devices.

    Parameters
    ----------
    local_data : LocalData
        Local data of the rows.
    reserve_fn : callable, optional
        Function of received parameters [n, P] that returns memory for increments to them, at their
        place in the payload of all rows. Without it increments have memory of their own.
    """

    local_data: LocalData
    reserve_fn: Callable[[Tensor], Tensor] | None = field(default=None, kw_only=True)
