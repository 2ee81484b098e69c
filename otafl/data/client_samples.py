"""Hold each device's own test and validation samples."""

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
    """Hold samples of each device. x: [n, *shape], y: [n] int64 or of another kind. index: [S * K,
    m] int64 places in x, padded. count, trial: [S * K] int64. classes: of the data set."""

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
        """Make the samples of S trials by K devices. parts: [S][K] places in x, none empty."""
        index, count = (torch.from_numpy(array).to(y.device) for array in pack(parts))
        trials, devices = count.shape
        trial = torch.arange(trials, device=y.device).repeat_interleave(devices)
        return ClientSamples(x, y, index.flatten(0, 1), count.flatten(), trial, classes)

    def pool_devices(self) -> ClientSamples:
        """Return each device with the samples of all devices of its trial."""
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
        """Return how many samples of each class the devices have, [S * K, classes] int64."""
        return count_classes(self.y[self.index], self.count, self.classes)

    def compute_majority_share(self) -> NDArray[np.float64]:
        """Return the share [S] of all devices' samples that are of their device's most frequent
        class: what a model gets right that knows nothing but that."""
        most = self.count_classes().amax(1).double()
        trials = int(self.trial[-1]) + 1
        right = most.view(trials, -1).sum(1) / self.count.view(trials, -1).sum(1)
        return np.asarray(right.cpu())
