"""Test and validation samples of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otafl.data.dataset import Indices
from otafl.data.device_splits import count_classes, pack


@dataclass(frozen=True)
class ClientSamples:
    """Samples by device, for S trials over K devices.

    Parameters
    ----------
    x : Tensor, [n, *shape]
        Samples of all devices.
    y : Tensor
        Their labels, int64 [n] of classes, [n, outputs] of values or [n, length] of tokens.
    index : Tensor, int64 [S * K, m]
        Indices of each device's samples in x, padded to the largest number m.
    count : Tensor, int64 [S * K]
        Number of samples of each device.
    trial : Tensor, int64 [S * K]
        Trial of each device.
    classes : int
        Number of classes of the data set.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    count: Tensor
    trial: Tensor
    classes: int

    @staticmethod
    def from_parts(
        x: Tensor, y: Tensor, parts: Sequence[Sequence[Indices]], classes: int
    ) -> ClientSamples:
        """Return the samples of parts [S][K], which are indices in x and never empty."""
        index, count = (torch.from_numpy(array).to(y.device) for array in pack(parts))
        trials, devices = count.shape
        trial = torch.arange(trials, device=y.device).repeat_interleave(devices)
        return ClientSamples(x, y, index.flatten(0, 1), count.flatten(), trial, classes)

    def pool_devices(self) -> ClientSamples:
        """Return a copy in which each device has the samples of all devices of its trial."""
        trials = int(self.trial[-1]) + 1
        held = torch.arange(self.index.shape[1], device=self.y.device) < self.count[:, None]
        whole = [self.index.view(trials, -1)[s][held.view(trials, -1)[s]] for s in range(trials)]
        parts = [[one.cpu().numpy()] for one in whole]
        index, count = (torch.from_numpy(array).to(self.y.device) for array in pack(parts))
        return ClientSamples(
            self.x, self.y, index[self.trial, 0], count[self.trial, 0], self.trial, self.classes
        )

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes."""
        return self.y.dim() == 1

    def count_classes(self) -> Tensor:
        """Count the samples of each class by device, [S * K, classes] int64."""
        return count_classes(self.y[self.index], self.count, self.classes)

    def compute_majority_share(self) -> NDArray[np.float64]:
        """Compute the majority accuracy [S].

        It is that of a classifier that only knows each device's most frequent class.
        """
        most = self.count_classes().amax(1).double()
        trials = int(self.trial[-1]) + 1
        right = most.view(trials, -1).sum(1) / self.count.view(trials, -1).sum(1)
        return np.asarray(right.cpu())

    def compute_guess_accuracy(self) -> NDArray[np.float64]:
        """Compute the accuracy [S] of a guess among the classes that each device holds."""
        trials = int(self.trial[-1]) + 1
        share = self.count.double() / (self.count_classes() > 0).sum(1)
        right = share.view(trials, -1).sum(1) / self.count.view(trials, -1).sum(1)
        return np.asarray(right.cpu())
