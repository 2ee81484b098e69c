"""Devices that take part in a round, what a power policy knows of their links, and its answer.

Sizes: S trials of one stack, K devices in the population, N (trial, device) pairs that take part, Q
segments of a payload that are sent with one coefficient each. Powers are in units of the receiver's
complex noise variance, so that sigma^2 = 1 and N = 1/2.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.tensors import Hyper

MIN_SNR = 1e-12
"""Smallest SNR at full power, 120 dB below the noise, at which a device counts as having a channel.

An average over a payload of any size does not lift a weaker signal out of the noise. Quotients with
this bound stay finite in single precision.
"""


@dataclass(frozen=True)
class Cohort:
    """Participants of a round in all trials of a stack, ordered by trial, then by device.

    Parameters
    ----------
    trial, device : Tensor, int64 [N]
        Trial and device of each row.
    weight : Tensor [N]
        Share of the device in all samples of the trial, whichever devices take part. A receiver
        normalises the weights over the rows that it sums.
    staleness : Tensor, int64 [N]
        Server steps since the version of the model that the row has received.
    version : Tensor, int64 [N]
        Version of the model that the row has received.
    capacity_level : Tensor, int64 [N]
        Index of the submodel that the row trains, 0 for the largest.
    transmit_mask : Tensor, bool [N]
        False for a device that trains but is not aggregated.
    counts : tuple of int
        Number of rows of each of the S trials, known on the host.
    num_devices : int
        Number of devices in the population, K.
    all_transmit : bool
        Whether the host knows that every row transmits.
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
        """Create rows that all transmit and have received one version of the model.

        Parameters
        ----------
        trial, device : Tensor, int64 [N]
            Trial and device of each row.
        weight : Tensor [N]
            Aggregation weight of each row.
        counts : tuple of int
            Number of rows of each trial.
        num_devices : int
            Number of devices in the population, K.
        version : int
            Version of the model.

        Returns
        -------
        Cohort
            The rows, with staleness 0 and capacity level 0.
        """
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
        """The number of rows, N."""
        return self.trial.shape[0]

    @property
    def num_trials(self) -> int:
        """The number of trials, S."""
        return len(self.counts)

    @functools.cached_property
    def flat_index(self) -> Tensor:
        """The row of each pair in a table [S * K, ...], int64 [N]."""
        return self.trial * self.num_devices + self.device

    @functools.cached_property
    def host_flat_index(self) -> np.ndarray:
        """The `flat_index` [N] on the host, copied once."""
        cell: np.ndarray = self.flat_index.cpu().numpy()
        return cell

    @functools.cached_property
    def host_trial_device(self) -> tuple[np.ndarray, np.ndarray]:
        """The trial and the device of each row on the host, [N] each."""
        trial, device = np.divmod(self.host_flat_index, self.num_devices)
        return trial, device

    @functools.cached_property
    def rows_per_trial(self) -> Tensor:
        """The number of rows of each trial, float [S]."""
        return self.weight.new_zeros(self.num_trials).index_add_(
            0, self.trial, torch.ones_like(self.weight)
        )

    @functools.cached_property
    def normalised_weight(self) -> Tensor:
        """The weights [N], normalised to a sum of one over the rows of a trial."""
        total = self.weight.new_zeros(self.num_trials).index_add_(0, self.trial, self.weight)
        return self.weight / total[self.trial]

    def scatter_to_grid(self, values: Tensor, fill: float | bool = 0.0) -> Tensor:
        """Scatter values [N, ...] of the rows into a grid [S, K, ...].

        Parameters
        ----------
        values : Tensor [N, ...]
            A value for each row.
        fill : float or bool
            Value of the devices that do not take part.

        Returns
        -------
        Tensor [S, K, ...]
            The grid.
        """
        cells = self.num_trials * self.num_devices
        table = values
        if values.shape[0] != cells:  # else every device takes part, rows in order
            table = values.new_full((cells, *values.shape[1:]), fill)
            table.index_copy_(0, self.flat_index, values)
        return table.view(self.num_trials, self.num_devices, *values.shape[1:])

    def pad_by_trial(self, values: Tensor) -> Tensor:
        """Arrange values [N, ...] of the rows by trial, padded with zeros.

        Parameters
        ----------
        values : Tensor [N, ...]
            A value for each row.

        Returns
        -------
        Tensor [S, m, ...]
            The values of each trial, m being the largest number of rows of a trial.
        """
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
        """The number of rows up to and including each trial, [S]."""
        return list(itertools.accumulate(self.counts))

    def slice_rows(self, start: int, stop: int) -> Cohort:
        """Return the rows from start to stop, without stop, as a cohort (a chunk)."""
        ends, counts = self._ends, [0] * self.num_trials
        stop = min(stop, self.num_rows)
        if start < stop:
            first, last = bisect.bisect_right(ends, start), bisect.bisect_left(ends, stop)
            counts[first : last + 1] = self.counts[first : last + 1]
            counts[first] -= start - (ends[first] - self.counts[first])
            counts[last] -= ends[last] - stop
        part: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in _COHORT_TENSORS}
        return replace(self, counts=tuple(counts), **part)

    def take(self, row_index: Tensor) -> Cohort:
        """Return the selected rows as a cohort.

        Parameters
        ----------
        row_index : Tensor, int64 [n]
            Positions of the rows, ordered by trial.

        Returns
        -------
        Cohort
            The n rows.
        """
        part = {name: getattr(self, name)[row_index] for name in _COHORT_TENSORS}
        counts = torch.bincount(part["trial"], minlength=self.num_trials)
        return replace(self, counts=tuple(counts.tolist()), **part)

    @property
    def transmitters(self) -> Cohort:
        """The rows that transmit, as a cohort."""
        if self.all_transmit:
            return self
        return replace(self.take(self.transmit_mask.nonzero().squeeze(1)), all_transmit=True)

    @staticmethod
    def join(first: Cohort, second: Cohort) -> tuple[Cohort, Tensor]:
        """Join two cohorts of the same trials.

        Parameters
        ----------
        first, second : Cohort
            Cohorts of N1 and N2 rows.

        Returns
        -------
        Cohort
            All rows, sorted by trial and device.
        Tensor, int64 [N1 + N2]
            The order that sorts the concatenated rows.
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


@dataclass(frozen=True)
class Link:
    """Information of a power policy on the Q segments of a payload, each sent with one coefficient.

    Parameters
    ----------
    h : Tensor, complex [S, Q, K]
        Estimated scalar channel after the receiver's combining, with large-scale gain. Its noise is
        that of one antenna.
    gain : Tensor [S, K]
        Large-scale power gain.
    budget : Tensor [S, K]
        Bound on |p|^2 times the mean symbol power.
    symbol_power : Tensor, float64 [S, Q, K]
        Mean symbol power m_k of the payload (side information). With it, policies compute in double
        precision, which squares of small updates need.
    noise_variance : Tensor [S]
        Variance N of one received real number, with known interference.
    transmit_mask : Tensor, bool [S, K]
        Devices that have something to transmit. Those of them in `eligible_mask` can transmit.
    is_linear : bool
        False for the factors of a product (weighting "none").
    hyper : mapping of str to Tensor [S]
        Stackable settings of the policy.
    num_antennas : int
        Number of server antennas, A.
    variation : Tensor [S, Q], optional
        Squared multivariate coefficient of variation of the symbols over the devices, for a policy
        with `needs_variation` (side information).
    energy_budget : Tensor [S, K], optional
        Largest energy that a device can radiate in this slot, in units of the receiver's noise
        variance times symbols; infinite for a device without a bound. If not given, no device has a
        bound.
    segment_lengths : Tensor [Q], optional
        Symbols of each segment.
    num_symbols : int
        Symbols of the whole slot.
    round : int
        Number of the round, from 0.
    segment_power : Tensor, float64 [S, Q, K], optional
        Mean symbol power E|x|^2 of each segment alone, for a policy with `needs_segment_power`
        (side information). `symbol_power` is a mean over the whole normalised payload.
    """

    h: Tensor
    gain: Tensor
    budget: Tensor
    symbol_power: Tensor
    noise_variance: Tensor
    transmit_mask: Tensor
    is_linear: bool
    hyper: Hyper
    num_antennas: int = 1
    variation: Tensor | None = None
    energy_budget: Tensor | None = None
    segment_lengths: Tensor | None = None
    num_symbols: int = 0
    round: int = 0
    segment_power: Tensor | None = None

    @functools.cached_property
    def eligible_mask(self) -> Tensor:
        """The devices that can transmit in each segment, bool [S, Q, K].

        These have something to transmit, and a channel with P_k |h_k|^2 of at least `MIN_SNR`.
        """
        channel = self.budget[:, None] * self.h.abs().square() >= MIN_SNR
        return self.transmit_mask[:, None] & channel


@dataclass(frozen=True)
class Coefficients:
    """Transmit scalars and receive scalings of a slot.

    Parameters
    ----------
    p : Tensor, complex [S, Q, K]
        Transmit scalars, 0 for a silent device.
    eta : Tensor [S, Q]
        Receive scaling, above 0.
    active_mask : Tensor, bool [S, Q, K]
        Devices that the receiver counts in its mean.
    silent_mask : Tensor, bool [S, Q, K], optional
        Devices among these that are silent although the receiver does not know it; none if not
        given.
    """

    p: Tensor
    eta: Tensor
    active_mask: Tensor
    silent_mask: Tensor | None = None

    @property
    def on_air_mask(self) -> Tensor:
        """The devices that transmit, bool [S, Q, K]."""
        return (
            self.active_mask if self.silent_mask is None else self.active_mask & ~self.silent_mask
        )
