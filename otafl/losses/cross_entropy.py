"""Cross-entropy of classes, and of the next token at each position of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Batch
from otafl.losses.base import (
    Labels,
    Loss,
    compute_softmax_gradient_,
    mix_probabilities,
    pick_scores,
)


class CrossEntropy(Loss):
    """Lower the cross-entropy of classes.

    The loss of a sample of class y with scores z is

        l(z, y) = ln sum_c exp(z_c) - z_y

    in nats, and its gradient by z is softmax(z) less one at y.

    Cross-entropy of class scores [n, B, classes] and labels [n, B].

    Examples
    --------
    >>> import torch
    >>> CrossEntropy().compute_losses(torch.zeros(1, 1, 4), torch.tensor([[2]])).exp()
    tensor([[4.]])
    """

    labels: ClassVar[tuple[Labels, ...]] = ("classes",)
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    device_metric: ClassVar[str] = "accuracy"
    is_class_entropy: ClassVar[bool] = True

    name: Literal["cross_entropy"] = "cross_entropy"

    def compute_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        return -pick_scores(torch.log_softmax(scores, -1), y)

    def compute_gradient_(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, g = compute_softmax_gradient_(scores, batch.y)
        if batch.weight is None:
            return loss.mean((1, 2)), g.mul_(1.0 / g.shape[1])
        weight = batch.weight[..., None]
        return (loss * weight).sum((1, 2)), g.mul_(weight)

    def compute_test_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        return torch.logsumexp(scores, -1) - pick_scores(scores, y)

    def find_right(self, scores: Tensor, y: Tensor) -> Tensor:
        return scores.argmax(-1) == y

    def mix_scores(self, scores: Tensor, log_weights: Tensor) -> Tensor:
        return mix_probabilities(scores, log_weights)

    def derive_metrics(
        self, loss: np.ndarray, outputs: int, variance: np.ndarray
    ) -> dict[str, np.ndarray]:
        return {}


class NextToken(Loss):
    """Lower the cross-entropy of the next token at each position of a sequence.

    A sample is a sequence of L tokens, and its label the same sequence one position further. The
    loss of a sample with scores z [L, vocabulary] is the mean over its positions

        l(z, y) = 1/L sum_t ( ln sum_v exp(z_tv) - z_{t, y_t} )

    in nats per token; bits are nats / ln 2. The test reports `perplexity`, the exponential of the
    loss.

    Cross-entropy of token scores [n, B, length, vocabulary] and next tokens [n, B, length].

    Examples
    --------
    >>> import torch
    >>> NextToken().compute_losses(torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 3).long()).exp()
    tensor([[8.0000]])
    """

    example: ClassVar[Mapping[str, Any]] = {"data.name": "shakespeare", "model.name": "ngram"}
    labels: ClassVar[tuple[Labels, ...]] = ("tokens",)
    metrics: ClassVar[tuple[str, ...]] = ("perplexity",)
    device_metric: ClassVar[str] = "perplexity"
    scores_positions: ClassVar[bool] = True

    name: Literal["next_token"] = "next_token"

    def compute_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        return -pick_scores(torch.log_softmax(scores, -1), y).mean(-1)

    def compute_gradient_(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, g = compute_softmax_gradient_(scores, batch.y)
        loss = loss.mean((2, 3))
        if batch.weight is None:
            return loss.mean(1), g.mul_(1.0 / (g.shape[1] * g.shape[2]))
        return (loss * batch.weight).sum(1), g.mul_((batch.weight / g.shape[2])[..., None, None])

    def compute_test_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        return (torch.logsumexp(scores, -1) - pick_scores(scores, y)).mean(-1)

    def compute_log_likelihood(self, scores: Tensor, y: Tensor) -> Tensor:
        return -scores.shape[-2] * self.compute_losses(scores, y)

    def mix_scores(self, scores: Tensor, log_weights: Tensor) -> Tensor:
        return mix_probabilities(scores, log_weights)

    def derive_metrics(
        self, loss: np.ndarray, outputs: int, variance: np.ndarray
    ) -> dict[str, np.ndarray]:
        with np.errstate(over="ignore"):
            return {"perplexity": np.exp(loss)}
