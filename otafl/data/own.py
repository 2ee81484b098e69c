"""Each device's own test and validation samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otafl.core.errors import UserError
from otafl.data.partition import Indices, pack


@dataclass(frozen=True)
class Shares:
    """A device's samples, as places in a data set: those it trains on, its own test and validation
    samples."""

    train: Indices
    test: Indices
    validation: Indices


def cut(part: Indices, test_share: float, validation_share: float) -> Shares:
    """A device's samples in order: training, validation, test. The training part with validation
    is the whole number below 1 - test_share of all, as in pFedBreD's split; of that the last
    validation_share validates. UserError where too few are left."""
    kept = int((1.0 - test_share) * len(part))
    held = round(validation_share * kept)
    if len(part) - kept < 1 or kept - held < 1 or (validation_share > 0 and held < 1):
        raise UserError(
            f"data.test: per_device cuts a device's {len(part)} samples into {kept - held} for "
            f"training, {held} for validation and {len(part) - kept} for testing; each needs at "
            "least one: use fewer devices, another partition or another data.test_share"
        )
    return Shares(part[: kept - held], part[kept:], part[kept - held : kept])


def of_classes(part: Indices, labels: Indices, others: Indices) -> Indices:
    """Places among `others` [m] (labels) of the classes that the samples `part` have; or of the
    users, where labels and others are users."""
    return np.flatnonzero(np.isin(others, np.unique(labels[part])))


@dataclass(frozen=True)
class OwnSamples:
    """Samples of each device. x: [n, *shape], y: [n] int64. index: [S * K, m] int64 places in x,
    padded. count: [S * K] int64. trial: [S * K] int64. classes: of the data set."""

    x: Tensor
    y: Tensor
    index: Tensor
    count: Tensor
    trial: Tensor
    classes: int

    @staticmethod
    def of(x: Tensor, y: Tensor, parts: list[list[Indices]], classes: int) -> OwnSamples:
        """parts: [S][K] places in x, none empty."""
        index, count = (torch.from_numpy(array).to(y.device) for array in pack(parts))
        trials, devices = count.shape
        trial = torch.arange(trials, device=y.device).repeat_interleave(devices)
        return OwnSamples(x, y, index.flatten(0, 1), count.flatten(), trial, classes)

    def together(self) -> OwnSamples:
        """Each device with the samples of all devices of its trial."""
        trials = int(self.trial[-1]) + 1
        held = torch.arange(self.index.shape[1], device=self.y.device) < self.count[:, None]
        whole = [self.index.view(trials, -1)[s][held.view(trials, -1)[s]] for s in range(trials)]
        parts = [[one.cpu().numpy()] for one in whole]
        index, count = (torch.from_numpy(array).to(self.y.device) for array in pack(parts))
        return OwnSamples(
            self.x, self.y, index[self.trial, 0], count[self.trial, 0], self.trial, self.classes
        )

    def class_counts(self) -> Tensor:
        """[S * K, classes] int64."""
        held = torch.arange(self.index.shape[1], device=self.y.device) < self.count[:, None]
        cell = torch.arange(len(self.count), device=self.y.device)[:, None]
        key = (cell * self.classes + self.y[self.index])[held]
        total = torch.bincount(key, minlength=len(self.count) * self.classes)
        return total.view(-1, self.classes)

    def majority(self) -> NDArray[np.float64]:
        """[S]: share of all devices' samples that are of their device's most frequent class: what
        a model gets right that knows nothing but that."""
        most = self.class_counts().amax(1).double()
        trials = int(self.trial[-1]) + 1
        right = most.view(trials, -1).sum(1) / self.count.view(trials, -1).sum(1)
        return np.asarray(right.cpu())
