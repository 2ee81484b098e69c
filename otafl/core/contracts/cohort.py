"""Hold who takes part in a round."""

from __future__ import annotations

import bisect
import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.core.renamed import Renamed


@dataclass(frozen=True)
class Cohort(Renamed):
    """Hold who takes part in a round; rows are ordered by trial, then by device.

    Parameters
    ----------
    trial, device : [N] int64, the pair of each row.
    weight : [N], the device's share of all samples of the trial, whoever takes part; a receiver
        normalises it over the rows that it sums.
    staleness : [N] int64, versions that the server has gone on by since the row's model.
    version : [N] int64, of the model that the row has received.
    capacity_level : [N] int64, the model size that it trains.
    transmit_mask : [N] bool, False for a device that trains but is not aggregated.
    counts : rows of each of the S trials, known on the host.
    num_devices : K.
    all_transmit : the host knows that every row sends.
    """

    trial: Tensor
    device: Tensor
    weight: Tensor
    staleness: Tensor
    version: Tensor
    capacity_level: Tensor
    transmit_mask: Tensor
    counts: tuple[int, ...]
    num_devices: int
    all_transmit: bool = True

    @staticmethod
    def create(
        trial: Tensor,
        device: Tensor,
        weight: Tensor,
        counts: tuple[int, ...],
        num_devices: int,
        version: int = 0,
    ) -> Cohort:
        """Return rows that all send, and whose model is of this version."""
        zeros = torch.zeros_like(trial)
        return Cohort(
            trial=trial,
            device=device,
            weight=weight,
            staleness=zeros,
            version=torch.full_like(zeros, version),
            capacity_level=zeros,
            transmit_mask=torch.ones_like(zeros, dtype=torch.bool),
            counts=counts,
            num_devices=num_devices,
        )

    @property
    def num_rows(self) -> int:
        """Return N."""
        return self.trial.shape[0]

    @property
    def num_trials(self) -> int:
        """Return S."""
        return len(self.counts)

    @functools.cached_property
    def flat_index(self) -> Tensor:
        """Return the row of each pair in a [S * K, ...] table, [N] int64."""
        return self.trial * self.num_devices + self.device

    @functools.cached_property
    def host_flat_index(self) -> np.ndarray:
        """Return `flat_index` on the host, [N]; read once."""
        cell: np.ndarray = self.flat_index.cpu().numpy()
        return cell

    @functools.cached_property
    def host_trial_device(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the trial and the device of each row on the host, [N] each."""
        trial, device = np.divmod(self.host_flat_index, self.num_devices)
        return trial, device

    @functools.cached_property
    def participants(self) -> list[np.ndarray]:
        """Return the devices of each trial, on the host."""
        return np.split(self.host_trial_device[1], np.cumsum(self.counts)[:-1])

    @functools.cached_property
    def rows_per_trial(self) -> Tensor:
        """Return how many rows each trial has, [S] float."""
        return get_constant(self.counts, self.weight.dtype, self.weight.device)

    @functools.cached_property
    def normalised_weight(self) -> Tensor:
        """Return the weights [N], made to sum to one over the rows of a trial."""
        total = self.weight.new_zeros(self.num_trials).index_add_(0, self.trial, self.weight)
        return self.weight / total[self.trial]

    def scatter_to_grid(self, values: Tensor, fill: float | bool = 0.0) -> Tensor:
        """Put values [N, ...] of the rows at their place in [S, K, ...]."""
        cells = self.num_trials * self.num_devices
        table = values
        if len(values) != cells:  # else every device takes part, rows in order
            table = values.new_full((cells, *values.shape[1:]), fill)
            table.index_copy_(0, self.flat_index, values)
        return table.view(self.num_trials, self.num_devices, *values.shape[1:])

    def pad_by_trial(self, values: Tensor) -> Tensor:
        """Put values [N, ...] of the rows side by side in their trials, [S, m, ...], m the most
        rows of a trial; zeros where it has fewer."""
        most = max(1, *self.counts)
        shape = (self.num_trials, most, *values.shape[1:])
        if len(values) == self.num_trials * most:
            return values.view(shape)
        before = self.rows_per_trial.long().cumsum(0) - self.rows_per_trial.long()
        place = torch.arange(len(values), device=values.device) - before[self.trial]
        table = values.new_zeros(shape)
        table[self.trial, place] = values
        return table

    @functools.cached_property
    def _ends(self) -> list[int]:
        """Return how many rows each trial and those before it have, S of them."""
        return list(itertools.accumulate(self.counts))

    def slice_rows(self, start: int, stop: int) -> Cohort:
        """Return the rows start..stop as a cohort of their own (a chunk)."""
        ends, counts = self._ends, [0] * self.num_trials
        for trial in range(bisect.bisect_right(ends, start), self.num_trials):
            before = ends[trial] - self.counts[trial]
            if before >= stop:
                break
            counts[trial] = min(stop, ends[trial]) - max(start, before)
        part: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in _COHORT_TENSORS}
        return replace(self, counts=tuple(counts), **part)

    def take(self, row_index: Tensor) -> Cohort:
        """Return the named rows [n] int64, ordered by trial, as a cohort of their own."""
        part = {name: getattr(self, name)[row_index] for name in _COHORT_TENSORS}
        return replace(self, counts=count_rows_per_trial(part["trial"], self.num_trials), **part)

    @property
    def transmitters(self) -> Cohort:
        """Return the rows that send, as a cohort of their own."""
        if self.all_transmit:
            return self
        return replace(self.take(self.transmit_mask.nonzero().squeeze(1)), all_transmit=True)

    @staticmethod
    def join(first: Cohort, second: Cohort) -> tuple[Cohort, Tensor]:
        """Return both cohorts as one, and the order [N1 + N2] that sorts their stacked rows by
        trial.
        """
        both = {n: torch.cat([getattr(first, n), getattr(second, n)]) for n in _COHORT_TENSORS}
        order = torch.argsort(both["trial"] * first.num_devices + both["device"], stable=True)
        part: dict[str, Any] = {name: value[order] for name, value in both.items()}
        counts = tuple(a + b for a, b in zip(first.counts, second.counts, strict=True))
        all_transmit = first.all_transmit and second.all_transmit
        return replace(first, counts=counts, all_transmit=all_transmit, **part), order


_COHORT_TENSORS = (
    "trial",
    "device",
    "weight",
    "staleness",
    "version",
    "capacity_level",
    "transmit_mask",
)


def count_rows_per_trial(trial: Tensor, num_trials: int) -> tuple[int, ...]:
    """Count the rows [n] of each trial."""
    return tuple(torch.bincount(trial, minlength=num_trials).tolist())
