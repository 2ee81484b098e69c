"""Evaluation of a method's views on the common test samples and on each device's own.

The views are the global model, and devices' local and personal models. The name of a result begins
with the model: nothing for the global one, local_, personal_, mean_, or tuned_. The latter are
personal models, or else the global one, after each device has fine-tuned them by
`training.fine_tune_steps`. It continues with own_ for the devices' own samples, where the samples
of all devices have equal weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import FineTuneSpec, View
from otafl.data.build import Samples
from otafl.data.device_splits import ClientSamples
from otafl.evaluation.scoring import (
    BatchStatistics,
    FineTuner,
    MetricNamer,
    OwnScores,
    Scores,
    Tune,
    evaluate_client,
    merge_equal_models,
)
from otafl.losses.base import Loss
from otafl.models.base import Model
from otafl.scenario.schema import TrainingSettings

_LEVEL = "level"
PREFIX = {"global": "", "local": "local_", "personal": "personal_", "mean": "mean_"}
"""View -> first part of the names of its results."""


class Evaluation:
    """Samples for the evaluation of one stack, and the scores of its models."""

    def __init__(
        self,
        samples: Samples,
        training: TrainingSettings,
        loss: Loss,
        model: Model | None = None,
    ) -> None:
        self._all, self._training, self._loss = samples, training, loss
        self._excess = None
        if model is not None:
            equal = training.weights == "uniform"
            self._excess = ExcessRisk.build(samples, model, loss, equal)
        self._namer = MetricNamer(loss, samples, training.eval_samples)
        data, like = samples.data, samples.sample_share
        self._test = _to_samples(data.x_test, data.y_test, training.eval_samples, like)
        held_out = data.x_validation, data.y_validation
        self._validation = _to_samples(*held_out, training.eval_samples, like)
        self._statistics = BatchStatistics(samples.training_data, training.norm_samples)
        self._together = None
        if self._test is None and samples.client_test is not None and training.cross_test:
            self._together = samples.client_test.pool_devices()

    def compute_constants(self) -> dict[str, np.ndarray]:
        """Return the properties of the test samples that hold before any round, [S, ...].

        These are their number, the share of their most frequent class, the accuracy of a guess,
        and the same of the devices' own.
        """
        own, trials = self._all.client_test, len(self._all.sample_share)
        out: dict[str, np.ndarray] = {}
        if self._excess is not None:
            out["minimum_risk"] = self._excess.minimum
        out |= {name: np.full(trials, one) for name, one in self._namer.list_guesses().items()}
        counts = None  # [S, classes]
        if self._test is not None:
            y = self._all.data.y_test[: self._training.eval_samples]
            out["test_samples"] = np.full(trials, float(len(y)))
            if self._all.data.labels == "classes":
                counts = np.tile(np.bincount(y), (trials, 1))
        if own is not None:
            held = own.count.view(trials, -1).sum(1).double().cpu().numpy()
            out["own_test_samples"] = held
            out.setdefault("test_samples", held)
        if own is not None and own.has_classes:
            by_device = own.count_classes().view(trials, -1, own.classes).double().cpu().numpy()
            counts = by_device.sum(1) if counts is None else counts
            guessed = by_device.sum(2) / np.count_nonzero(by_device, 2)
            out["majority_accuracy"] = by_device.max(2).sum(1) / held
            out["own_accuracy_guess"] = guessed.sum(1) / held
            if self._training.class_losses:
                out["device_own_class_samples"] = by_device
        if counts is not None:
            out["majority_share"] = counts.max(1) / counts.sum(1)
            out["accuracy_guess"] = 1.0 / np.count_nonzero(counts, 1)
        return out

    def take(
        self, views: Mapping[str, View], round: int, running: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Score all views: name of `variables.VARIABLES` -> [S], [S, K] or [S, K, classes]."""
        out: dict[str, np.ndarray] = {}
        once = {id(view): self._statistics.add_statistics(view) for view in views.values()}
        views = {name: once[id(view)] for name, view in views.items()}
        if self._excess is not None and "global" in views:
            out["excess_risk"] = self._excess.compute(views["global"], running)
        levels = [views[name] for name in views if name.startswith(_LEVEL)]
        views = {name: view for name, view in views.items() if not name.startswith(_LEVEL)}
        if levels:  # the model of each size, on the common test samples or all devices' own
            scores = []
            for view in levels:
                at = _Evaluator(self._all, self._loss, view, None, running)
                if self._test is not None:
                    scores.append(at.score_common(*self._test))
                else:
                    assert self._all.client_test is not None
                    scores.append(at.score_client(self._all.client_test))
            accuracy, loss = (
                np.stack([getattr(one, name) for one in scores], 1) for name in ("accuracy", "loss")
            )
            out |= self._namer.name_scores("level_", "test", Scores(accuracy, loss))
        tunings = {n: () if v.fine_tune is None else (v.fine_tune,) for n, v in views.items()}
        tested: list[tuple[str, View, tuple[FineTuneSpec, ...]]] = [
            (PREFIX[name], view, tunings[name]) for name, view in views.items()
        ]
        training = self._training
        if training.fine_tune_steps:
            name = "personal" if "personal" in views else "global"
            share = self._all.sample_share
            rate = share.new_full((len(share),), training.fine_tune_learning_rate)
            last = FineTuneSpec(training.fine_tune_steps, rate)
            tested.append(("tuned_", views[name], (*tunings[name], last)))
        for prefix, view, before in tested:
            tune = None
            if before:
                own = self._all.training_data
                tune = FineTuner(self._loss, view.predict_fn, before, own, round)
            out |= self._evaluate(prefix, _Evaluator(self._all, self._loss, view, tune, running))
        return out

    def _evaluate(self, prefix: str, at: _Evaluator) -> dict[str, np.ndarray]:
        own, validation = self._all.client_test, self._all.client_validation
        classes = self._training.class_losses and prefix == "personal_"
        out: dict[str, np.ndarray] = {}
        on_own = None if own is None else at.score_client(own, classes)
        if self._test is not None and (
            own is None or not at.has_device_models or self._training.cross_test
        ):
            out |= self._namer.name_scores(prefix, "test", at.score_common(*self._test, classes))
        elif on_own is not None and not at.has_device_models:  # the union of all devices' samples
            out |= self._namer.name_scores(prefix, "test", on_own.forget_devices())
        elif self._together is not None:
            out |= self._namer.name_scores(prefix, "test", at.score_client(self._together, classes))
        if on_own is not None:
            out |= self._namer.name_scores(f"{prefix}own_", "test", on_own)
        if self._validation is not None and not (prefix or at.has_device_models):
            out |= self._namer.name_scores(prefix, "validation", at.score_common(*self._validation))
        if validation is not None:
            scores = at.score_client(validation)
            out |= self._namer.name_scores(f"{prefix}own_", "validation", scores)
            if self._validation is None and not (prefix or at.has_device_models):
                out |= self._namer.name_scores(prefix, "validation", scores)
        return out


@dataclass(frozen=True)
class _Evaluator:
    """Scores of one view for the running trials; `tune` makes each device's copy."""

    samples: Samples
    loss_fn: Loss
    view: View
    tune: Tune | None
    running: np.ndarray

    @property
    def has_device_models(self) -> bool:
        """Whether devices have models of their own."""
        return self.view.owner == "device" or self.tune is not None

    def score_common(self, x: Tensor, y: Tensor, classes: bool = False) -> Scores:
        """Score on common samples; the score of devices' models is the mean over devices."""
        each = self.samples.sample_share.shape[1] if self.has_device_models else 1
        number, view = self.samples.data.classes, self.view
        if view.param_index is None and self.tune is None and self.running.all():
            view = merge_equal_models(view)
        shared = view.param_index
        if shared is not None and self.tune is None and not classes:  # models of several rows
            models = torch.arange(len(next(iter(view.params.values()))), device=y.device)
            view = replace(view, param_index=None)
            same = ClientSamples.share(x, y, models, number)
            sums = evaluate_client(view, self.loss_fn, same, models)
            of = shared[self._find_running_rows(each)]
            sums = OwnScores(sums.right[of], sums.loss[of], sums.count[of])
            scores = self._pool_devices(sums, each)
        else:
            trial = torch.arange(len(self.running) * each, device=y.device) // each
            scores = self.score_client(ClientSamples.share(x, y, trial, number), classes)
        return scores if self.has_device_models else scores.forget_devices()

    def score_client(self, samples: ClientSamples, classes: bool = False) -> Scores:
        """Score on samples of each device, where all samples of a trial have equal weight."""
        each = len(samples.count) // len(self.running)
        rows = self._find_running_rows(each)
        sums = evaluate_client(self.view, self.loss_fn, samples, rows, self.tune, classes)
        return self._pool_devices(sums, each)

    def _pool_devices(self, sums: OwnScores, each: int) -> Scores:
        """Return the scores of running trials, of which each has so many devices."""
        right, loss, count = (one.view(-1, each) for one in (sums.right, sums.loss, sums.count))
        by_class = None
        if sums.class_loss is not None:
            by_class = self._fill_trials(sums.class_loss.view(*count.shape, -1))
        return Scores(
            self._fill_trials(right.sum(1) / count.sum(1)),
            self._fill_trials(loss.sum(1) / count.sum(1)),
            self._fill_trials(right / count),
            self._fill_trials(loss / count),
            by_class,
        )

    def _find_running_rows(self, rows_per_trial: int) -> Tensor:
        """Return the rows [n] int64 of the running trials, `rows_per_trial` of each."""
        running = np.repeat(self.running, rows_per_trial)
        return torch.from_numpy(running.nonzero()[0]).to(self.samples.sample_share.device)

    def _fill_trials(self, values: Tensor) -> np.ndarray:
        """Return [running trials, ...] as [S, ...], NaN for stopped trials."""
        full = np.full((len(self.running), *values.shape[1:]), np.nan)
        full[self.running] = values.cpu().numpy()
        return full


def _to_samples(
    x: np.ndarray, y: np.ndarray, count: int | None, device: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the first `count` samples (all, if None) on the torch device; None without samples."""
    if not len(y):
        return None
    labels = torch.from_numpy(y[:count])
    like = device if labels.is_floating_point() else device.device
    return torch.from_numpy(x[:count]).to(device), labels.to(like)


MAX_INPUTS = 600
"""Largest number of inputs for which the optimum is computed."""

BLOCK = 4096
"""Samples whose second moment is computed together."""


class ExcessRisk:
    r"""Excess risk of an affine model under the squared loss, whose optimum is known.

    The training objective of a trial is the weighted mean over its devices k,

        F(w) = sum_k p_k F_k(w),    F_k(w) = mean_i |x_i^T w - y_i|^2 / 2 + ridge |w|^2 / 2,

    with p_k their shares of the samples, or equal with `training.weights: uniform`. An intercept is
    one more input that is 1, without penalty. With H = sum_k p_k E_k[x x^T] + ridge I, w* = H^+ c
    and c = sum_k p_k E_k[x y],

        F(w) - F(w*) = (w - w*)^T H (w - w*) / 2,

    which is computed in double precision, free of the cancellation of a difference. The weights of
    a model are read off its scores of the zero sample and of the unit samples.

    hessian: [S, M, M]. optimum: [S, M, outputs]. minimum: [S], F(w*).
    """

    def __init__(self, samples: Samples, model: Model, uniform: bool) -> None:
        data = samples.training_data
        self._shape = tuple(data.x.shape[1:])
        self._intercept = model.has_intercept
        count = data.count.view(data.num_trials, -1).double()
        weight = torch.full_like(count, 1.0 / count.shape[1])
        if not uniform:
            weight = count / count.sum(1, keepdim=True)
        hessians, optima, minima = [], [], []
        for trial in range(data.num_trials):
            x, y, share = _gather(samples, trial, weight[trial] / count[trial])
            x = np.column_stack([x, np.ones(len(x))]) if self._intercept else x
            hessian, moment = _compute_moments(x, y, share)
            penalty = np.full(len(hessian), model.ridge)
            penalty[len(hessian) - int(self._intercept) :] = 0.0
            hessian = hessian + np.diag(penalty)
            optimum = np.linalg.lstsq(hessian, moment, rcond=1e-13)[0]
            left = (share[:, None] * y**2).sum() - (optimum * moment).sum()
            hessians.append(hessian)
            optima.append(optimum)
            minima.append(0.5 * left)
        self.hessian, self.optimum = np.stack(hessians), np.stack(optima)
        self.minimum = np.array(minima)

    @staticmethod
    def build(samples: Samples, model: Model, loss: Loss, uniform: bool) -> ExcessRisk | None:
        """Return the excess risk of a scenario, None where the optimum is not known."""
        inputs = int(np.prod(samples.data.input_shape))
        known = model.is_affine and loss.is_quadratic and inputs <= MAX_INPUTS
        if not known or samples.training_data.augment is not None:
            return None
        return ExcessRisk(samples, model, uniform)

    def compute(self, view: View, running: np.ndarray) -> np.ndarray:
        """Compute F(w) - F(w*) of each trial's global model [S], NaN for stopped trials."""
        away = self._read_weights(view) - self.optimum
        risk = 0.5 * np.einsum("smo,smn,sno->s", away, self.hessian, away)
        return np.where(running, risk, np.nan)

    def _read_weights(self, view: View) -> np.ndarray:
        """Return the weights [S, M, outputs] of the models, the intercept last."""
        inputs = int(np.prod(self._shape))
        like = next(iter(view.params.values()))
        dtype = like.dtype if like.is_floating_point() else torch.float32
        probes = torch.zeros(inputs + 1, inputs, dtype=dtype, device=like.device)
        probes[:inputs].fill_diagonal_(1.0)
        scores = view.predict_fn(view.params, probes.view(1, -1, *self._shape))
        found = scores.double().cpu().numpy()
        weights, intercept = found[:, :-1] - found[:, -1:], found[:, -1:]
        return np.concatenate([weights, intercept], 1) if self._intercept else weights


def _gather(samples: Samples, trial: int, share: Tensor) -> tuple[np.ndarray, ...]:
    """Return the samples of a trial's devices and the share of each in the objective.

    These are x [n, inputs], labels y [n, outputs] and shares [n]; share: [K] of a device's samples.
    """
    data = samples.training_data
    devices = slice(trial * data.num_devices, (trial + 1) * data.num_devices)
    count, place = data.count[devices], torch.arange(data.max_samples, device=data.count.device)
    index = data.index[devices][place < count[:, None]]
    x, y = data.x[index].flatten(1).double().cpu().numpy(), data.y[index].cpu()
    labels = y.double().numpy() if y.is_floating_point() else np.eye(data.classes)[y.numpy()]
    return x, labels, np.repeat(share.cpu().numpy(), count.cpu().numpy())


def _compute_moments(
    x: np.ndarray, y: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted second moments of x with x [M, M] and with y [M, outputs]."""
    own, with_y = 0.0, 0.0
    for start in range(0, len(x), BLOCK):
        part = slice(start, start + BLOCK)
        weighted = x[part] * share[part, None]
        own, with_y = own + weighted.T @ x[part], with_y + weighted.T @ y[part]
    return np.asarray(own), np.asarray(with_y)
