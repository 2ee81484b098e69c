"""Local data and models to test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from otafl.core.contracts.blocks import Blocks
from otafl.core.contracts.cohort import Cohort

Predict = Callable[[Blocks, Tensor], Tensor]

Moments = Callable[[Blocks, Tensor], Blocks]


@dataclass(frozen=True)
class FineTune:
    """SGD steps that a device takes before its model is tested, on minibatches of its own training
    samples, and then forgets. rate: [S] step size."""

    steps: int
    rate: Tensor


@dataclass(frozen=True)
class View:
    """A model to be evaluated. params: name -> [S, *shape] (owner "trial") or [S * K, *shape]
    (owner "device"). predict(params [n, ...], x [n or 1, B, *input]) -> scores [n, B, classes],
    differentiable by the parameters where the model is fine-tuned. fine_tune: each device tests
    its own fine-tuned copy. moments(params, x) -> blocks [n, *shape]: statistics of batch
    normalisations on a batch of training samples; their means over batches are added to the
    parameters that `predict` is given, which without them uses the statistics of what it sees."""

    params: Blocks
    predict: Predict
    owner: Literal["trial", "device"] = "trial"
    fine_tune: FineTune | None = None
    moments: Moments | None = None


@dataclass(frozen=True)
class Batch:
    """x: [n, B, *input], y: [n, B] int64, weight: [n, B] summing to one in a row, or None for
    equal weights."""

    x: Tensor
    y: Tensor
    weight: Tensor | None


class Work(Protocol):
    """The local data of a chunk of cohort rows in one round."""

    round: int
    steps: int
    cohort: Cohort

    def batch(self, step: int, draw: int = 0) -> Batch:
        """Minibatch of a local step; `draw` tells several independent ones of a step apart."""

    def full(self) -> Batch:
        """All local data, padded to the longest row with weight 0."""

    def class_counts(self) -> Tensor:
        """[n, classes] samples of each class."""

    def take(self, rows: Tensor) -> Work:
        """The local data of the named rows [n] int64, ordered by trial."""


@dataclass(frozen=True)
class Level:
    """A size that a method has models of. ratio: of its width or rank to the whole's. parameters;
    macs: multiplications of a forward pass of one sample; flops(samples): of a device's local
    work; kept_reals: numbers that a sample leaves behind for the backward pass."""

    ratio: float
    parameters: int
    macs: int
    flops: Callable[[int], float]
    kept_reals: int = 0
