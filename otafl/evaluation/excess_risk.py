r"""Excess risk of an affine model under the squared loss, whose optimum is known.

The training objective of a trial is the weighted mean over its devices k,

    F(w) = sum_k p_k F_k(w),    F_k(w) = mean_i |x_i^T w - y_i|^2 / 2 + ridge |w|^2 / 2,

with p_k their shares of the samples, or equal with `training.weights: uniform`. An intercept is one
more input that is 1, without penalty. With H = sum_k p_k E_k[x x^T] + ridge I and w* = H^+ c,
c = sum_k p_k E_k[x y],

    F(w) - F(w*) = (w - w*)^T H (w - w*) / 2,

which is computed in double precision, free of the cancellation of a difference. The weights of a
model are read off its scores of the zero sample and of the unit samples.
"""

from __future__ import annotations

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
