"""Who takes part in a round."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round. Rows are ordered by trial, then by device.

    trial, device, staleness, version, level: [N] int64. weight: [N] float, the device's share of
    all samples of the trial, whoever takes part; a receiver normalises it over the rows that it
    sums. sends: [N] bool, False for a device that trains but is not aggregated. counts: rows of
    each of the S trials, known on the host. population: K. all_send: the host knows that every
    row sends.
    """

    trial: Tensor
    device: Tensor
    weight: Tensor
    staleness: Tensor
    version: Tensor
    level: Tensor
    sends: Tensor
    counts: tuple[int, ...]
    population: int
    all_send: bool = True

    @staticmethod
    def fresh(
        trial: Tensor,
        device: Tensor,
        weight: Tensor,
        counts: tuple[int, ...],
        population: int,
        version: int = 0,
    ) -> Cohort:
        """Rows that all send, and whose model is of this version."""
        zeros = torch.zeros_like(trial)
        return Cohort(
            trial=trial,
            device=device,
            weight=weight,
            staleness=zeros,
            version=torch.full_like(zeros, version),
            level=zeros,
            sends=torch.ones_like(zeros, dtype=torch.bool),
            counts=counts,
            population=population,
        )

    @property
    def size(self) -> int:
        """N."""
        return self.trial.shape[0]

    @property
    def trials(self) -> int:
        """S."""
        return len(self.counts)

    @functools.cached_property
    def cell(self) -> Tensor:
        """[N] int64: row of the pair in a [S * K, ...] table."""
        return self.trial * self.population + self.device

    @functools.cached_property
    def participants(self) -> list[np.ndarray]:
        """The devices of each trial, on the host."""
        return np.split(self.device.cpu().numpy(), np.cumsum(self.counts)[:-1])

    @functools.cached_property
    def rows_of(self) -> Tensor:
        """[S] float: rows of each trial, as `counts`."""
        return self.weight.new_tensor(self.counts)

    @functools.cached_property
    def unit_weight(self) -> Tensor:
        """[N]: the weights, summing to one over the rows of a trial."""
        total = self.weight.new_zeros(self.trials).index_add_(0, self.trial, self.weight)
        return self.weight / total[self.trial]

    def rows(self, start: int, stop: int) -> Cohort:
        """The rows start..stop as a cohort of their own (a chunk)."""
        counts, first = [], 0
        for count in self.counts:
            counts.append(max(0, min(stop, first + count) - max(start, first)))
            first += count
        part: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in _COHORT_TENSORS}
        return replace(self, counts=tuple(counts), **part)

    def take(self, rows: Tensor) -> Cohort:
        """The named rows [n] int64, ordered by trial, as a cohort of their own."""
        part = {name: getattr(self, name)[rows] for name in _COHORT_TENSORS}
        return replace(self, counts=rows_per_trial(part["trial"], self.trials), **part)

    @property
    def senders(self) -> Cohort:
        """The rows that send, as a cohort of their own."""
        if self.all_send:
            return self
        return replace(self.take(self.sends.nonzero().squeeze(1)), all_send=True)

    @staticmethod
    def join(first: Cohort, second: Cohort) -> tuple[Cohort, Tensor]:
        """Both cohorts as one, and the order [N1 + N2] that sorts their stacked rows by trial."""
        both = {n: torch.cat([getattr(first, n), getattr(second, n)]) for n in _COHORT_TENSORS}
        order = torch.argsort(both["trial"] * first.population + both["device"], stable=True)
        part: dict[str, Any] = {name: value[order] for name, value in both.items()}
        counts = tuple(a + b for a, b in zip(first.counts, second.counts, strict=True))
        all_send = first.all_send and second.all_send
        return replace(first, counts=counts, all_send=all_send, **part), order


_COHORT_TENSORS = ("trial", "device", "weight", "staleness", "version", "level", "sends")


def rows_per_trial(trial: Tensor, trials: int) -> tuple[int, ...]:
    """How many rows [n] each of the trials has."""
    return tuple(torch.bincount(trial, minlength=trials).tolist())
