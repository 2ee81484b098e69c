r"""Lower the cross-entropy of classes.

The loss of a sample of class y with scores z is

    l(z, y) = ln sum_c exp(z_c) - z_y

in nats, and its gradient by z is softmax(z) less one at y.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Batch
from otafl.losses.base import (
    Labels,
    LabelSpread,
    Loss,
    compute_softmax_gradient_,
    mix_probabilities,
    pick_scores,
)


class CrossEntropy(Loss):
    """Cross-entropy of class scores [n, B, classes] and labels [n, B].

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

    def derive_metrics(self, loss: np.ndarray, spread: LabelSpread) -> dict[str, np.ndarray]:
        return {}
