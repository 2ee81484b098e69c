"""Scores of a model in training, of samples without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Batch
from otafl.models.base import Model


def score_training(
    model: Model,
    params: Mapping[str, Any],
    x: Tensor,
    weight: Tensor | None = None,
    keys: Tensor | None = None,
) -> Tensor:
    """Scores [n, B, classes] of a minibatch; no model's scores depend on its labels."""
    labels = torch.zeros(x.shape[:2], dtype=torch.int64)
    return model.score_batch(params, Batch(x, labels, weight, keys))
