"""Scores of models in a test, and the names of the metrics that belong to a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from otafl.data.build import Samples
from otafl.data.device_splits import ClientSamples
from otafl.losses.base import LabelSpread, Loss


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
        self._has_classes = data.labels == "classes"
        self._spreads = {
            "test": self._measure_common(data.y_test[:eval_samples], data.classes),
            "validation": self._measure_common(data.y_validation[:eval_samples], data.classes),
            "own_test": self._measure_own(samples.client_test, samples),
            "own_validation": self._measure_own(samples.client_validation, samples),
        }
        for part in ("test", "validation"):
            if not len(getattr(data, f"y_{part}")):
                self._spreads[part] = self._spreads[f"own_{part}"]

    def list_guesses(self) -> dict[str, np.ndarray | float]:
        """Return what a guess has: of values the mean label, of tokens any of them alike."""
        spread = self._spreads["test"]
        if "perplexity" in self._loss.metrics:
            return {"perplexity_guess": float(spread.outputs)}
        return {"mse_guess": spread.variance} if (spread.variance > 0).all() else {}

    def name_scores(self, prefix: str, on: str, scores: Scores) -> dict[str, np.ndarray]:
        """Return the variables of scores on test or validation samples.

        prefix: the first part of their names, `own_` at its end for devices' own samples.
        """
        loss, out = self._loss, {}
        spread = self._spreads[f"own_{on}" if prefix.endswith("own_") else on]
        if self._has_classes:
            out[f"{prefix}{on}_accuracy"] = scores.accuracy
        out[f"{prefix}{on}_loss"] = scores.loss
        shaped = spread.align(scores.loss)
        out |= {
            f"{prefix}{on}_{name}": value
            for name, value in loss.derive_metrics(scores.loss, shaped).items()
        }
        if scores.by_device is not None and on == "test" and self._has_classes:
            out[f"device_{prefix}{on}_accuracy"] = scores.by_device
        elif scores.loss_by_device is not None and on == "test":
            by_device = loss.derive_metrics(scores.loss_by_device, LabelSpread(0.0, spread.outputs))
            name = loss.device_metric
            out[f"device_{prefix}{on}_{name}"] = by_device[name]
        if scores.by_class is not None:
            out[f"device_{prefix}class_loss"] = scores.by_class
        return out

    def name_control(self, name: str, mse: np.ndarray) -> dict[str, np.ndarray]:
        """Return the variables of a prediction without a model, of the mean squared errors [S]."""
        spread = self._spreads["own_test"].align(mse)
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1.0 - mse / spread.variance
        return {f"{name}_mse": mse} | ({f"{name}_r2": r2} if (spread.variance > 0).all() else {})

    def _measure_common(self, y: np.ndarray, outputs: int) -> LabelSpread:
        if self._has_classes or y.dtype.kind != "f" or not len(y):
            return LabelSpread(0.0, outputs)
        return LabelSpread(float(y.astype(np.float64).var(0).mean()), outputs)

    def _measure_own(self, own: ClientSamples | None, samples: Samples) -> LabelSpread:
        """Measure the labels of all devices of a trial together, [S]."""
        outputs = samples.data.classes
        if own is None or not own.y.is_floating_point():
            return LabelSpread(0.0, outputs)
        trials = len(samples.sample_share)
        return LabelSpread(_compute_pooled_variance(own, own.y, trials), outputs)


def _compute_pooled_variance(own: ClientSamples, y: Tensor, trials: int) -> np.ndarray:
    """Return the variance [S] of the labels of all devices of each trial together."""
    held = torch.arange(own.index.shape[1], device=y.device) < own.count[:, None]
    parts = zip(own.index.chunk(trials), held.chunk(trials), strict=True)
    pooled = [y[index[mask]].double().cpu().numpy() for index, mask in parts]
    return np.array([labels.var(0).mean() for labels in pooled])
