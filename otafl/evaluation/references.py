r"""Values beside which models are judged: a known optimum, and predictions without a model.

The excess risk is that of an affine model under the squared loss, whose optimum is known.

The training objective of a trial is the weighted mean over its devices k,

    F(w) = sum_k p_k F_k(w),    F_k(w) = mean_i |x_i^T w - y_i|^2 / 2 + ridge |w|^2 / 2,

with p_k their shares of the samples, or equal with `training.weights: uniform`. An intercept is one
more input that is 1, without penalty. With H = sum_k p_k E_k[x x^T] + ridge I and w* = H^+ c,
c = sum_k p_k E_k[x y],

    F(w) - F(w*) = (w - w*)^T H (w - w*) / 2,

which is computed in double precision, free of the cancellation of a difference. The weights of a
model are read off its scores of the zero sample and of the unit samples.

The mean control predicts each device's mean training label; the line control the least-squares
line of its training labels in time. Both are tested on the devices' own test samples, where a
personal model that is no better has learned nothing from the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import View
from otafl.data.build import Samples
from otafl.losses.base import Loss
from otafl.models.base import Model

MAX_INPUTS = 600
"""Largest number of inputs for which the optimum is computed."""

BLOCK = 4096
"""Samples whose second moment is computed together."""


class ExcessRisk:
    """Objective of each trial, and its optimum.

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


MAX_CELLS = 20_000
"""Devices of all trials up to which there are controls."""

Numbers = tuple[np.ndarray, np.ndarray | None]
"""Labels [n, outputs], and times [n] where they are known."""


def compute_control_errors(samples: Samples) -> dict[str, np.ndarray]:
    """Compute the mean squared errors [S] of the controls, by their names.

    Empty without values or without own test samples; `line_control` only where times are known.
    """
    own, data = samples.client_test, samples.training_data
    if own is None or not own.y.is_floating_point() or len(own.count) > MAX_CELLS:
        return {}
    errors: dict[str, list[float]] = {}
    pairs = list(_iterate_devices(samples))
    for trial in range(data.num_trials):
        devices = pairs[trial * data.num_devices : (trial + 1) * data.num_devices]
        squares: dict[str, list[np.ndarray]] = {}
        for train, test in devices:
            for name, predicted in _predict(train, test).items():
                squares.setdefault(name, []).append((predicted - test[0]) ** 2)
        for name, found in squares.items():
            errors.setdefault(name, []).append(float(np.concatenate(found).mean()))
    return {name: np.array(found) for name, found in errors.items()}


def _iterate_devices(samples: Samples) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield training and test labels of each device of each trial."""
    own, data, source = samples.client_test, samples.training_data, samples.data
    assert own is not None
    y_train, y_test = data.y.double().cpu().numpy(), own.y.double().cpu().numpy()
    time_test = source.time_test if len(source.y_test) else source.time
    for k in range(len(own.count)):
        train = data.index[k, : int(data.count[k])].cpu().numpy()
        test = own.index[k, : int(own.count[k])].cpu().numpy()
        yield (
            (y_train[train], None if source.time is None else source.time[train]),
            (y_test[test], None if time_test is None else time_test[test]),
        )


def _predict(train: Numbers, test: Numbers) -> dict[str, np.ndarray]:
    """Return the predictions [n, outputs] of the controls for a device's test samples."""
    labels, mean = train[0], train[0].mean(0)
    found = {"mean_control": np.broadcast_to(mean, test[0].shape)}
    if train[1] is None or test[1] is None:
        return found
    centre = train[1].mean()
    spread = train[1] - centre
    square = (spread**2).sum()
    slope = spread @ (labels - mean) / square if square > 0 else np.zeros_like(mean)
    return found | {"line_control": mean + (test[1] - centre)[:, None] * slope}
