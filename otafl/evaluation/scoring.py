"""Accuracy and loss of models on common samples or on those of each device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import (
    Batch,
    FineTuneSpec,
    PredictFn,
    Tensors,
    View,
    take_rows,
    unsqueeze_like,
)
from otafl.data.device_splits import ClientSamples
from otafl.data.training_data import TrainingData
from otafl.engine.device_store import MODELS_CHUNK
from otafl.losses.base import Loss

EVALUATION_CHUNK = 1 << 21
"""Real numbers of test inputs that are processed together, for all rows."""

POSITION_REALS = 64
"""Numbers that a position of a sequence takes: about the scores of an alphabet."""


def evaluate(
    view: View, loss_fn: Loss, x: Tensor, y: Tensor, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return accuracy [n] and mean loss [n] of each of a view's models, or of given rows.

    The models are tested on samples x [T, *input], y [T, ...], in chunks of samples. The accuracy
    is 0 where labels are no classes.
    """
    n = next(iter(view.params.values())).shape[0]
    num_coordinates = sum(block[0].numel() for block in view.params.values())
    if view.owner == "device" and n * num_coordinates > MODELS_CHUNK:
        every = torch.arange(n, device=y.device) if rows is None else rows
        parts = [
            evaluate(
                replace(view, params={k: take_rows(b, one) for k, b in view.params.items()}),
                loss_fn,
                x,
                y,
            )
            for one in every.split(max(1, MODELS_CHUNK // num_coordinates))
        ]
        return torch.cat([right for right, _ in parts]), torch.cat([loss for _, loss in parts])
    params = view.params
    if rows is not None:
        params = {name: take_rows(block, rows) for name, block in params.items()}
        n = len(rows)
    right = torch.zeros(n, dtype=torch.float64, device=y.device)
    loss = torch.zeros_like(right)
    size = max(1, EVALUATION_CHUNK // (n * count_sample_reals(loss_fn, x)))
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        scores = view.predict_fn(params, part[None])
        target = labels.expand(n, *labels.shape)
        hits = loss_fn.find_right(scores, target)
        if hits is not None:
            right += hits.sum(1)
        loss += loss_fn.compute_test_losses(scores, target).sum(1)
    return right / len(y), loss / len(y)


def count_sample_reals(loss_fn: Loss, x: Tensor) -> int:
    """Count the real numbers of a sample x [n, *input], or of the scores of its positions."""
    return x[0].numel() * (POSITION_REALS if loss_fn.scores_positions else 1)


Tune = Callable[[Tensors, Tensor], Tensors]
"""(parameters [n, *shape], devices [n] as rows of [S * K]) -> fine-tuned copies."""


@dataclass(frozen=True)
class OwnScores:
    """Scores of models on devices' own samples, as sums over a device's samples.

    right, loss, count: [n]. class_loss, class_count: [n, classes], 0 without classes.
    """

    right: Tensor
    loss: Tensor
    count: Tensor
    class_loss: Tensor
    class_count: Tensor


def evaluate_client(
    view: View,
    loss_fn: Loss,
    samples: ClientSamples,
    cells: Tensor,
    tune: Tune | None = None,
) -> OwnScores:
    """Score the devices cells [n], rows of [S * K], each with its own model of the view.

    If the view has one model per trial, the device uses its trial's. With `tune`, the model is
    fine-tuned first.
    """
    n, classes = len(cells), samples.classes
    new = functools.partial(torch.zeros, dtype=torch.float64, device=samples.y.device)
    right, loss, class_loss = new(n), new(n), new(n * classes)
    owner = view.get_param_rows(cells) if view.owner == "device" else samples.trial[cells]
    num_coordinates = sum(block[0].numel() for block in view.params.values())
    count = samples.count[cells]
    order = count.argsort(descending=True)  # rows of similar length together, for little padding
    size = count_sample_reals(loss_fn, samples.x)
    start = 0
    while start < n:
        longest = int(count[order[start]])
        rows = order[
            start : start + max(1, EVALUATION_CHUNK // (num_coordinates + min(longest, 256) * size))
        ]
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
            lost = loss_fn.compute_test_losses(scores, target)
            lost = lost.double() * held
            loss[rows] += lost.sum(1)
            hits = loss_fn.find_right(scores, target)
            if hits is not None:
                right[rows] += (hits & held).sum(1)
                of_class = (rows[:, None] * classes + target).flatten()
                class_loss.index_add_(0, of_class, lost.flatten())
    counts = samples.count_classes()[cells] if samples.has_classes else class_loss.view(n, -1)
    return OwnScores(
        right,
        loss,
        count.double(),
        class_loss.view(n, classes),
        counts.double(),
    )


@dataclass(frozen=True)
class FineTuner:
    """The fine-tuning steps of one evaluation.

    Each device takes a few SGD steps with a copy of its model, on minibatches of its own training
    samples. The copy is discarded after the test.

    tunings: applied in order, for example Per-FedAvg's own and then the trick FT of pFedBreD
    (appendix C.4).
    """

    loss: Loss
    predict_fn: PredictFn
    tunings: tuple[FineTuneSpec, ...]
    data: TrainingData
    round: int

    def __call__(self, params: Tensors, flat_index: Tensor) -> Tensors:
        """Return the parameters [n, *shape] of the devices cells [n], after the steps."""
        step = 0
        for tuning in self.tunings:
            rate = tuning.learning_rate[flat_index // self.data.num_devices]
            for _ in range(tuning.num_steps):
                batch = self.data.draw_test_batch(self.round, step, flat_index)
                params = _take_step(self.loss, self.predict_fn, params, batch, rate)
                step += 1
        return params


def _take_step(
    loss_fn: Loss, predict: PredictFn, params: Tensors, batch: Batch, rate: Tensor
) -> Tensors:
    """Return the parameters after a step of SGD; integers, such as a row's trial, stay."""
    with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
        copies = {name: value.clone() for name, value in params.items()}
        leaves = {n: one.requires_grad_() for n, one in copies.items() if one.is_floating_point()}
        weight = None if batch.weight is None else batch.weight.clone()
        batch = Batch(batch.x.clone(), batch.y.clone(), weight)
        loss = loss_fn.compute_mean(predict(copies, batch.x), batch)
        found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    grads = dict(zip(leaves, found, strict=True))
    return {
        name: value
        if (grad := grads.get(name)) is None
        else value - unsqueeze_like(rate, value) * grad
        for name, value in params.items()
    }
