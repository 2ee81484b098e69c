"""Accuracy and loss of models on common samples or on those of each device, and their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import (
    Batch,
    FineTuneSpec,
    MomentsFn,
    PredictFn,
    Tensors,
    View,
    take_rows,
    unsqueeze_like,
)
from otafl.data.build import Samples
from otafl.data.device_splits import ClientSamples
from otafl.data.training_data import TrainingData
from otafl.losses.base import Loss

EVALUATION_CHUNK = 1 << 21
"""Real numbers of test inputs that are processed together, for all rows."""

POSITION_REALS = 64
"""Numbers that a position of a sequence takes: about the scores of an alphabet."""

Tune = Callable[[Tensors, Tensor], Tensors]
"""(parameters [n, *shape], devices [n] as rows of [S * K]) -> fine-tuned copies."""


@dataclass(frozen=True)
class OwnScores:
    """Scores of models on devices' own samples, as sums over a device's samples.

    right, loss, count: [n]; right is 0 where labels are no classes. class_loss: [n, classes], the
    mean loss of each class, None unless it is asked for.
    """

    right: Tensor
    loss: Tensor
    count: Tensor
    class_loss: Tensor | None = None


def evaluate_client(
    view: View,
    loss_fn: Loss,
    samples: ClientSamples,
    cells: Tensor,
    tune: Tune | None = None,
    by_class: bool = False,
) -> OwnScores:
    """Score the devices cells [n], rows of [S * K], each with its own model of the view.

    If the view has one model per trial, the device uses its trial's. With `tune`, the model is
    fine-tuned first.
    """
    n, classes = len(cells), samples.classes
    new = functools.partial(torch.zeros, dtype=torch.float64, device=samples.y.device)
    right, loss, class_loss = new(n), new(n), new(n * classes if by_class else 0)
    owner = view.get_param_rows(cells) if view.owner == "device" else samples.trial[cells]
    num_coordinates = sum(block[0].numel() for block in view.params.values())
    count = samples.count[cells]
    order = count.argsort(descending=True)  # rows of similar length together, for little padding
    # the real numbers of a sample, or of the scores of its positions
    size = samples.x[0].numel() * (POSITION_REALS if loss_fn.scores_positions else 1)
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
            if samples.is_common:  # without a copy for each row
                x, y = (of[first : first + width] for of in (samples.x, samples.y))
                x, target = x[None], y.expand(len(rows), *y.shape)
            else:
                sample = samples.index[cells[rows]][:, place]
                x, target = samples.x[sample], samples.y[sample]
            scores = view.predict_fn(params, x)
            lost = loss_fn.compute_test_losses(scores, target)
            lost = lost.double() * held
            loss[rows] += lost.sum(1)
            hits = loss_fn.find_right(scores, target)
            if hits is not None:
                right[rows] += (hits & held).sum(1)
            if by_class:
                of_class = (rows[:, None] * classes + target).flatten()
                class_loss.index_add_(0, of_class, lost.flatten())
    mean = class_loss.view(n, -1) / samples.count_classes()[cells] if by_class else None
    return OwnScores(right, loss, count.double(), mean)


def merge_equal_models(view: View) -> View:
    """Return a view with equal models once, as those of a sweep's points and devices at the start.

    Its `param_index` has the model of each row. It is the given view if no two are equal.
    """
    blocks, first = list(view.params.values()), dict[tuple[float, ...], int]()
    sums = torch.stack([one.reshape(len(one), -1).sum(1).double() for one in blocks], 1).tolist()
    model = list[int]()
    for row, key in enumerate(map(tuple, sums)):
        same = first.setdefault(key, row)
        equal = same == row or all(torch.equal(one[same], one[row]) for one in blocks)
        model.append(same if equal else row)
    rows, index = torch.tensor(model, device=blocks[0].device).unique(return_inverse=True)
    if len(rows) == len(model):
        return view
    params = {name: take_rows(block, rows) for name, block in view.params.items()}
    return replace(view, params=params, param_index=index)


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
                params = self._take_step(params, batch, rate)
                step += 1
        return params

    def _take_step(self, params: Tensors, batch: Batch, rate: Tensor) -> Tensors:
        """Return the parameters after a step of SGD; integers, such as a row's trial, stay."""
        with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
            copies = {name: value.clone() for name, value in params.items()}
            leaves = {n: b.requires_grad_() for n, b in copies.items() if b.is_floating_point()}
            weight = None if batch.weight is None else batch.weight.clone()
            batch = Batch(batch.x.clone(), batch.y.clone(), weight)
            loss = self.loss.compute_mean(self.predict_fn(copies, batch.x), batch)
            found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        moved = dict(params)
        for name, grad in zip(leaves, found, strict=True):
            if grad is not None:
                moved[name] = params[name] - unsqueeze_like(rate, grad) * grad
        return moved


@dataclass(frozen=True)
class Scores:
    """Scores of running trials, NaN for others.

    accuracy, loss: [S]. by_device, loss_by_device: [S, K] accuracy and loss, or None. by_class:
    [S, K, classes] loss, NaN if a device has no sample of a class, or None.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    by_device: np.ndarray | None = None
    loss_by_device: np.ndarray | None = None
    by_class: np.ndarray | None = None

    def forget_devices(self) -> Scores:
        """Return the scores without those of single devices."""
        return replace(self, by_device=None, loss_by_device=None)


class MetricNamer:
    """Names of the metrics of a scenario's loss, and their values.

    A metric without a meaning for the labels is left out.
    """

    def __init__(self, loss: Loss, samples: Samples, eval_samples: int | None) -> None:
        self._loss, data = loss, samples.data
        self._outputs, self._has_classes = data.classes, data.labels == "classes"
        self._variances = {}
        for part in ("test", "validation"):
            labels, own = getattr(data, f"y_{part}"), getattr(samples, f"client_{part}")
            has_values = own is not None and own.y.is_floating_point()
            pooled = _compute_variances(own.list_trial_labels() if has_values else [])
            self._variances[f"own_{part}"] = pooled
            common = _compute_variances([labels[:eval_samples]])
            self._variances[part] = common if len(labels) else pooled

    def list_guesses(self) -> dict[str, np.ndarray | float]:
        """Return what a guess has: of values the mean label, of tokens any of them alike."""
        if "perplexity" in self._loss.metrics:
            return {"perplexity_guess": float(self._outputs)}
        variance = self._variances["test"]
        return {"mse_guess": variance} if (variance > 0).all() else {}

    def name_scores(self, prefix: str, on: str, scores: Scores) -> dict[str, np.ndarray]:
        """Return the variables of scores on test or validation samples.

        prefix: the first part of their names, `own_` at its end for devices' own samples.
        """
        out = {}
        if self._has_classes:
            out[f"{prefix}{on}_accuracy"] = scores.accuracy
        out[f"{prefix}{on}_loss"] = scores.loss
        variance = self._variances[f"own_{on}" if prefix.endswith("own_") else on]
        out |= self._derive(f"{prefix}{on}", scores.loss, variance)
        if scores.by_device is not None and on == "test" and self._has_classes:
            out[f"device_{prefix}{on}_accuracy"] = scores.by_device
        elif scores.loss_by_device is not None and on == "test":
            name = f"device_{prefix}{on}"
            found = self._derive(name, scores.loss_by_device, np.zeros(1))
            metric = f"{name}_{self._loss.device_metric}"
            out[metric] = found[metric]
        if scores.by_class is not None:
            out[f"device_{prefix}class_loss"] = scores.by_class
        return out

    def _derive(self, name: str, loss: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
        """Return the metrics that follow from losses [S, ...] on labels of a variance [S or 1]."""
        shaped = variance.reshape(-1, *[1] * (loss.ndim - 1))
        found = self._loss.derive_metrics(loss, self._outputs, shaped)
        return {f"{name}_{metric}": value for metric, value in found.items()}


def _compute_variances(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Return the variance of each set of labels [n, outputs] about their mean; 0 for no values."""
    if not all(len(y) and y.dtype.kind == "f" for y in labels) or not labels:
        return np.zeros(1)
    return np.array([y.astype(np.float64).var(0).mean() for y in labels])


BATCH = 250
"""Largest number of samples in a batch."""


class BatchStatistics:
    """Estimator of the batch normalisation statistics of devices' training data.

    They are estimated again for each test (Diao, Ding, Tarokh 2021, "HeteroFL", section 3) and not
    averaged over devices. The estimate is that of torch's BatchNorm with `momentum=None` after one
    pass in training mode: the mean over batches of their means and unbiased variances.

    A trial's model uses the training samples of all its devices together; a device's own model uses
    the samples of that device.

    samples: number of samples in a pass, evenly spread; None for all.
    """

    def __init__(self, data: TrainingData, samples: int | None) -> None:
        self._data, self._samples = data, samples
        self._pooled: Tensor | None = None

    def add_statistics(self, view: View) -> View:
        """Return the view with the statistics among its parameters.

        A view without normalisation is returned unchanged.
        """
        if view.moments_fn is None:
            return view
        if view.owner == "trial":
            if self._pooled is None:
                self._pooled = self._pool()
            found = self._average(view.params, view.moments_fn, self._pooled)
            return replace(view, params=view.params | found)
        view, data, every = view.expand_per_device(), self._data, list[Tensors]()
        assert view.moments_fn is not None
        for cell, count in enumerate(data.count.tolist()):
            own = _space_evenly(data.index[cell, :count].cpu().numpy(), self._samples)
            row = torch.tensor([cell], device=data.index.device)
            params = {n: take_rows(b, row) for n, b in view.params.items()}
            place = torch.from_numpy(own)[None].to(data.index.device)
            every.append(self._average(params, view.moments_fn, place))
        found = {name: torch.cat([one[name] for one in every]) for name in every[0]}
        return replace(view, params=view.params | found)

    def _average(self, params: Tensors, moments: MomentsFn, sample_index: Tensor) -> Tensors:
        """Average over nearly equal batches of the samples place [S or 1, T]."""
        parts = sample_index.tensor_split(-(-sample_index.shape[1] // BATCH), 1)
        total: Tensors = {}
        for part in parts:
            found = moments(params, self._data.x[part])
            total = {name: block + total.get(name, 0.0) for name, block in found.items()}
        return {name: block / len(parts) for name, block in total.items()}

    def _pool(self) -> Tensor:
        """Return the samples of each trial's devices in the data set's order, equally many, [S, T].

        [1, T] if all trials have the same.
        """
        data = self._data
        index = data.index.view(data.num_trials, data.num_devices, -1).cpu().numpy()
        count = data.count.view(data.num_trials, -1).cpu().numpy()
        held = np.arange(data.max_samples) < count[..., None]
        pooled = [np.unique(own[own_held]) for own, own_held in zip(index, held, strict=True)]
        size = min(len(one) for one in pooled)
        rows = np.stack([_space_evenly(one, min(size, self._samples or size)) for one in pooled])
        if (rows == rows[0]).all():
            rows = rows[:1]
        return torch.from_numpy(rows).to(data.index.device)


def _space_evenly(sample_index: np.ndarray, samples: int | None) -> np.ndarray:
    """Return the given number of places, evenly spread; all if None or fewer."""
    if samples is None or samples >= len(sample_index):
        return sample_index
    return sample_index[np.arange(samples) * len(sample_index) // samples]
