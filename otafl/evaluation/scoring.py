"""Accuracy and cross-entropy of models on common samples or on those of each device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import Tensors, View, take_rows
from otafl.data.client_samples import ClientSamples
from otafl.engine.device_store import MODELS_CHUNK

EVALUATION_CHUNK = 1 << 21
"""Real numbers of test inputs that are processed together, for all rows."""


def evaluate(view: View, x: Tensor, y: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return accuracy [n] and mean cross-entropy [n] of each of a view's models, or of given rows.

    The models are tested on samples x [T, *input], y [T], in chunks of samples.
    """
    n = next(iter(view.params.values())).shape[0]
    reals = sum(block[0].numel() for block in view.params.values())
    if view.owner == "device" and n * reals > MODELS_CHUNK:
        every = torch.arange(n, device=y.device) if rows is None else rows
        parts = [
            evaluate(
                replace(view, params={k: take_rows(b, one) for k, b in view.params.items()}), x, y
            )
            for one in every.split(max(1, MODELS_CHUNK // reals))
        ]
        return torch.cat([right for right, _ in parts]), torch.cat([loss for _, loss in parts])
    params = view.params
    if rows is not None:
        params = {name: take_rows(block, rows) for name, block in params.items()}
        n = len(rows)
    right = torch.zeros(n, dtype=torch.float64, device=y.device)
    loss = torch.zeros_like(right)
    size = max(1, EVALUATION_CHUNK // (n * x[0].numel()))
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        scores = view.predict_fn(params, part[None])
        target = labels.expand(n, -1)
        right += (scores.argmax(-1) == target).sum(1)
        picked = scores.gather(-1, target[..., None]).squeeze(-1)
        loss += (torch.logsumexp(scores, -1) - picked).sum(1)
    return right / len(y), loss / len(y)


Tune = Callable[[Tensors, Tensor], Tensors]
"""(parameters [n, *shape], devices [n] as rows of [S * K]) -> fine-tuned copies."""


@dataclass(frozen=True)
class OwnScores:
    """Scores of models on devices' own samples, as sums over a device's samples.

    right, loss, count: [n]. class_loss, class_count: [n, classes].
    """

    right: Tensor
    loss: Tensor
    count: Tensor
    class_loss: Tensor
    class_count: Tensor


def evaluate_client(
    view: View, samples: ClientSamples, cells: Tensor, tune: Tune | None = None
) -> OwnScores:
    """Score the devices cells [n], rows of [S * K], each with its own model of the view.

    If the view has one model per trial, the device uses its trial's. With `tune`, the model is
    fine-tuned first.
    """
    n, classes = len(cells), samples.classes
    new = functools.partial(torch.zeros, dtype=torch.float64, device=samples.y.device)
    right, loss, class_loss = new(n), new(n), new(n * classes)
    owner = view.get_param_rows(cells) if view.owner == "device" else samples.trial[cells]
    reals = sum(block[0].numel() for block in view.params.values())
    count = samples.count[cells]
    order = count.argsort(descending=True)  # rows of similar length together, for little padding
    size = samples.x[0].numel()
    start = 0
    while start < n:
        longest = int(count[order[start]])
        rows = order[start : start + max(1, EVALUATION_CHUNK // (reals + min(longest, 256) * size))]
        start += len(rows)
        params = {name: take_rows(block, owner[rows]) for name, block in view.params.items()}
        if tune is not None:
            params = tune(params, cells[rows])
        width = max(1, EVALUATION_CHUNK // (len(rows) * size))
        for first in range(0, longest, width):
            place = torch.arange(first, min(first + width, longest), device=rows.device)
            held = place < count[rows, None]
            sample = samples.index[cells[rows]][:, place]
            target = samples.y[sample]
            scores = view.predict_fn(params, samples.x[sample])
            lost = torch.logsumexp(scores, -1) - scores.gather(-1, target[..., None]).squeeze(-1)
            lost = lost.double() * held
            right[rows] += ((scores.argmax(-1) == target) & held).sum(1)
            loss[rows] += lost.sum(1)
            class_loss.index_add_(0, (rows[:, None] * classes + target).flatten(), lost.flatten())
    return OwnScores(
        right,
        loss,
        count.double(),
        class_loss.view(n, classes),
        samples.count_classes()[cells].double(),
    )
