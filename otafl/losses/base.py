"""Define the contract of a loss, and what several losses share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings

Labels = Literal["classes", "values", "tokens"]
"""Kind of labels: whole numbers [n], real values [n, outputs], or token sequences [n, length]."""

LABELS = {
    "classes": "classes [n]",
    "values": "real values [n, outputs]",
    "tokens": "token sequences [n, length]",
}
"""Kind of labels -> what they are."""


class Loss(Settings):
    """Loss of a sample, by which models are trained and tested.

    A loss is its settings, the section `loss` of a scenario. Scores are what a model gives:
    [n, B, outputs], or [n, B, length, outputs] where every position of a sequence has scores.
    """

    labels: ClassVar[tuple[Labels, ...]]
    """Kinds of labels that it is defined for; it is the default of data with the first one."""

    metrics: ClassVar[tuple[str, ...]]
    """Metrics of a test beside the loss, by the last word of their variables."""

    device_metric: ClassVar[str]
    """Metric or loss that is recorded of each device's own model."""

    units: ClassVar[str] = "nat"
    """Units of the loss."""

    scores_positions: ClassVar[bool] = False
    """A model has scores for every position of a sequence, not for the sample."""

    is_quadratic: ClassVar[bool] = False
    """It is half the squared distance of scores from labels, so that affine models have a known
    optimum."""

    mixes_predictions: ClassVar[bool] = False
    """A mixture of models predicts the mean of their scores, not of their probabilities."""

    is_class_entropy: ClassVar[bool] = False
    """Its gradient by the scores of a sample is their softmax less one at the class. A class with
    its own `compute_gradient_` does not inherit it."""

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        super().__pydantic_init_subclass__(**keywords)
        if "compute_gradient_" in vars(cls) and "is_class_entropy" not in vars(cls):
            cls.is_class_entropy = False

    @abstractmethod
    def compute_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Compute the loss of each sample, differentiable by the scores.

        Parameters
        ----------
        scores : Tensor, [n, B, outputs]
            Scores of n models.
        y : Tensor, [n, B] or [n, B, outputs]
            Labels.

        Returns
        -------
        Tensor, [n, B]
            Losses.
        """

    def compute_mean(self, scores: Tensor, batch: Batch) -> Tensor:
        """Compute the weighted mean loss [n] over the samples of each row."""
        losses = self.compute_losses(scores, batch.y)
        return losses.mean(-1) if batch.weight is None else (losses * batch.weight).sum(-1)

    @abstractmethod
    def compute_gradient_(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the mean loss [n] and its gradient by the scores, which are overwritten."""

    def compute_test_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Compute the losses [n, B] of a test."""
        return self.compute_losses(scores, y)

    def find_right(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """Return which samples have the right class [n, B] bool; None without classes."""
        return None

    def compute_log_likelihood(self, scores: Tensor, y: Tensor) -> Tensor:
        """Compute the logarithm of each sample's likelihood [n, B], up to a constant."""
        return -self.compute_losses(scores, y)

    @abstractmethod
    def mix_scores(self, scores: Tensor, log_weights: Tensor) -> Tensor:
        """Mix the predictions of M models.

        Parameters
        ----------
        scores : Tensor, [M, n, B, ...]
            Scores of the models.
        log_weights : Tensor, [M, n, 1, ...]
            Logarithms of the mixture's weights, which broadcast.

        Returns
        -------
        Tensor, [n, B, ...]
            Scores of the mixture.
        """

    def get_metrics(self, labels: Labels | None) -> tuple[str, ...]:
        """Return the metrics of a test beside the loss, on labels of a kind (None: of any)."""
        return self.metrics

    @abstractmethod
    def derive_metrics(
        self, loss: np.ndarray, outputs: int, variance: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Derive the metrics that follow from mean test losses, by their names.

        Parameters
        ----------
        loss : ndarray, any shape
            Mean losses of tests.
        outputs : int
            Numbers in the label of a sample.
        variance : ndarray
            Mean square of the test labels about their mean, over samples and outputs, in a shape
            that broadcasts; 0 if it is unknown or labels are no values.
        """

    def find_misfits(self, labels: Labels | None, data: str) -> Iterator[str]:
        """Yield a sentence where labels of a kind, of the data set `data`, are not its own."""
        if labels is None or labels in self.labels:
            return
        fitting = registry.list_fitting("loss", lambda one: labels in one.labels)
        wanted = " or ".join(LABELS[one] for one in self.labels)
        yield (
            f"'{self.name}' needs labels that are {wanted}, but data '{data}' has {LABELS[labels]};"
            f" use {' or '.join(fitting)}"
        )

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that the data set has labels of this loss."""
        misfits = list(self.find_misfits(scenario.data.labels, scenario.data.name))
        for text in misfits:
            yield make_problem(text, "loss", "data")
        if not misfits and ":" not in scenario.model.name:
            found = registry.load_component("model", scenario.model.name)
            if found.find_scores_positions(scenario.model) != self.scores_positions:
                yield make_problem(self.describe_model_misfit(scenario.model.name), "model", "loss")

    def describe_model_misfit(self, model: str) -> str:
        """Write that a model does not score what the loss needs, and list the models that do."""
        fitting = registry.list_fitting(
            "model", lambda one: one.scores_positions == self.scores_positions
        )
        if self.scores_positions:
            either = registry.list_fitting("model", lambda one: bool(one.positions_by))
            fitting += [registry.load_component("model", one).positions_by for one in either]
        scored = "every position of a sequence" if self.scores_positions else "a sample as a whole"
        return (
            f"loss '{self.name}' needs scores of {scored}, which '{model}' does not give; use "
            f"{' or '.join(fitting)}"
        )


def pick_scores(scores: Tensor, y: Tensor) -> Tensor:
    """Return the scores [..] of the classes y [..], out of scores [.., classes]."""
    return scores.gather(-1, y[..., None]).squeeze(-1)


def compute_softmax_gradient_(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropies [.., 1] of scores z [.., classes] and their gradients.

    The scores are overwritten by the gradients. It is written out, since torch's softmax over a
    short last dimension is several times slower.
    """
    index = y[..., None]
    z.sub_(z.amax(-1, keepdim=True))
    picked = z.gather(-1, index)
    g = z.exp_()
    total = g.sum(-1, keepdim=True)
    loss = total.log().sub_(picked)
    g.div_(total)
    g.scatter_add_(-1, index, total.new_full((), -1.0).expand_as(total))
    return loss, g


def mix_probabilities(scores: Tensor, log_weights: Tensor) -> Tensor:
    """Return the log-probabilities of a mixture of M models' softmax distributions."""
    return torch.logsumexp(torch.log_softmax(scores, -1) + log_weights, 0)
