"""Batch normalisation statistics of the training data, estimated before a test.

They are estimated again for each test (Diao, Ding, Tarokh 2021, "HeteroFL", section 3) and not
averaged over devices. The estimate is that of torch's BatchNorm with `momentum=None` after one pass
in training mode: the mean over batches of their means and unbiased variances.

A trial's model uses the training samples of all its devices together; a device's own model uses the
samples of that device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import MomentsFn, Tensors, View, take_rows
from otafl.data.training_data import TrainingData

BATCH = 250
"""Largest number of samples in a batch."""


class BatchStatistics:
    """Estimator of the statistics of devices' training data.

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
        view, cells = view.expand_per_device(), len(self._data.count)
        assert view.moments_fn is not None
        every = [
            self._compute_device_statistics(view.params, view.moments_fn, cell)
            for cell in range(cells)
        ]
        own = {name: torch.cat([one[name] for one in every]) for name in every[0]}
        return replace(view, params=view.params | own)

    def _compute_device_statistics(
        self, params: Tensors, moments: MomentsFn, flat_index: int
    ) -> Tensors:
        own = self._data.index[flat_index, : int(self._data.count[flat_index])].cpu().numpy()
        place = torch.from_numpy(_space_evenly(own, self._samples))[None].to(
            self._data.index.device
        )
        row = torch.tensor([flat_index], device=self._data.index.device)
        return self._average({n: take_rows(b, row) for n, b in params.items()}, moments, place)

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
