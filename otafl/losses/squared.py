r"""Lower half the squared error of predicted values.

The loss of a sample with label y and prediction f, both of one or more outputs, is

    l(f, y) = |f - y|^2 / 2,

whose gradient by f is f - y. It is the loss of linear regression, whose Hessian in the weights is
the second moment of the inputs. Classes count as one-hot labels. The test reports `mse`, the mean
squared error over samples and outputs, and `r2`, one less its ratio to the variance of the test
labels.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Batch
from otafl.losses.base import Labels, Loss


class Squared(Loss):
    """Half the squared error of predictions [n, B, outputs] and labels of the same shape.

    Examples
    --------
    >>> import torch
    >>> Squared().compute_losses(torch.zeros(1, 1, 2), torch.ones(1, 1, 2))
    tensor([[1.]])
    """

    labels: ClassVar[tuple[Labels, ...]] = ("values", "classes")
    metrics: ClassVar[tuple[str, ...]] = ("mse", "r2")
    device_metric: ClassVar[str] = "mse"
    units: ClassVar[str] = "1"
    is_quadratic: ClassVar[bool] = True
    mixes_predictions: ClassVar[bool] = True

    name: Literal["squared"] = "squared"

    def compute_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (scores - _encode_one_hot(scores, y)).square().sum(-1)

    def compute_gradient_(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        g = scores.sub_(_encode_one_hot(scores, batch.y))
        loss = 0.5 * g.square().sum(-1)
        if batch.weight is None:
            return loss.mean(1), g.mul_(1.0 / g.shape[1])
        return (loss * batch.weight).sum(1), g.mul_(batch.weight[..., None])

    def find_right(self, scores: Tensor, y: Tensor) -> Tensor | None:
        return None if y.is_floating_point() else scores.argmax(-1) == y

    def get_metrics(self, labels: Labels | None) -> tuple[str, ...]:
        if labels == "values":
            return self.metrics
        return ("accuracy", "mse") if labels == "classes" else ("accuracy", *self.metrics)

    def mix_scores(self, scores: Tensor, log_weights: Tensor) -> Tensor:
        return (scores * log_weights.exp()).sum(0)

    def derive_metrics(
        self, loss: np.ndarray, outputs: int, variance: np.ndarray
    ) -> dict[str, np.ndarray]:
        mse = 2.0 * loss / outputs
        return {"mse": mse, "r2": 1.0 - mse / variance} if (variance > 0).all() else {"mse": mse}


def _encode_one_hot(scores: Tensor, y: Tensor) -> Tensor:
    """Return labels of the scores' shape [n, B, outputs]: values as they are, classes one-hot."""
    if y.is_floating_point():
        return y
    return torch.zeros_like(scores).scatter_(-1, y[..., None], 1.0)
