"""Estimate the channel from pilots, by least squares or with the least mean squared error.

Each device sends pilots in each coherence block, and they are counted as side information: L pilots
of power P on a coherence cell, a coherence block of a sub-carrier group, of which the receiver
hears y = sqrt(beta P) h + n, n ~ CN(0, 1), at each antenna.

Least squares: h_ls = mean(y) / sqrt(beta P) = h + e, e ~ CN(0, 1 / (L P beta)). The mean over the
pilots is a sufficient statistic, so it is drawn in one piece. MMSE on a flat cell of E|h|^2 = 1,
which is known: h_mmse = h_ls / (1 + 1 / (L P beta)). With a comb, only one group in so many carries
pilots, and Sionna's LS estimator interpolates linearly between them.

Each path that a reflecting surface is set by has L pilots of its own in a block, and is estimated
by least squares: its mean power is not taken to be known.

References
----------
Kay 1993, "Fundamentals of Statistical Signal Processing: Estimation Theory".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.sionna_rng import keep_global_state
from otafl.core.rng import Streams, declare_family, declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi, draw_device_errors, draw_path_errors

if TYPE_CHECKING:
    from sionna.phy.ofdm import LSChannelEstimator

PILOTS = declare_purpose("csi_pilots", __name__)
PATH_PILOTS = declare_family("csi_path_pilots", __name__)

MIN_GAIN = 1e-30
"""Of a device from which no pilot arrives: the estimate is noise, and finite."""


class Pilots(Csi):
    """The error's variance is known where it is the same for all devices of a trial, for least
    squares on every group."""

    class Settings(Csi.Settings):
        name: Literal["pilots"] = "pilots"
        estimator: Literal["ls", "mmse"] = "ls"
        """least squares, or least mean squared error with the mean power known, for each coherence
        block and sub-carrier group alone"""
        length: int = Field(1, ge=1)
        """pilots on a sub-carrier group that carries them, in a block"""
        power_db: Decibels = declare_stackable(0.0)
        """power of a pilot over the device's budget, in dB"""
        comb: int = Field(1, ge=1)
        """one sub-carrier group in so many carries pilots; the others' estimates are interpolated
        linearly"""

        def find_conflicts(self) -> Iterator[str]:
            if self.estimator == "mmse" and self.comb > 1:
                yield (
                    "estimator: 'mmse' estimates each sub-carrier group by its own pilots, but "
                    f"comb is {self.comb}; comb: 1 or estimator: ls would do"
                )

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        length, budget = self.settings.length, self.budget
        self._energy = length * budget.budget * db_to_linear(self.hyper["power_db"][:, None])
        start = self.channel.get_large_scale_state(0)
        groups = start.h.shape[4]
        self._comb = min(self.settings.comb, groups)
        self._symbols = length * -(-groups // self._comb)
        self._interpolate = None
        if self._comb > 1:
            self._interpolate = build_ls_estimator(groups, self._comb, self.streams)
        error = self.error_variance(start.gain)
        known = self.settings.estimator == "ls" and self._comb == 1
        alike = torch.equal(start.gain, budget.gain) and bool((error == error[:, :1]).all())
        self._variance = error[:, 0] if known and alike else None

    @property
    def variance(self) -> Tensor | None:
        return self._variance

    @property
    def num_pilot_symbols(self) -> int:
        return self._symbols + self.settings.length * self.channel.num_sounded_paths

    def error_variance(self, gain: Tensor) -> Tensor:
        """Return 1 / (L P beta), of the least-squares estimate where there are pilots, [S, K]."""
        return 1.0 / (self._energy * gain.clamp_min(MIN_GAIN))

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        error = self.error_variance(gain)[:, :, None, None, None]
        pilots = h[..., :: self._comb]
        h_ls = pilots + draw_device_errors(self.streams, PILOTS, round, pilots, error)
        if self._interpolate is not None:
            return _interpolate_pilots(self._interpolate, h_ls, h.shape[4], self._comb)
        return h_ls if self.settings.estimator == "ls" else h_ls / (1.0 + error)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        true = paths(round)
        error = self.error_variance(gain)[:, :, None, None, None]
        return true + draw_path_errors(self.streams, PATH_PILOTS, round, true, error)


def build_ls_estimator(groups: int, comb: int, streams: Streams) -> LSChannelEstimator:
    """Return Sionna's least-squares estimator on one OFDM symbol of so many sub-carriers, one in
    `comb` of them with a pilot of value 1; it interpolates linearly and, past the last pilot,
    extrapolates."""
    with keep_global_state():
        from sionna.phy.ofdm import LSChannelEstimator, PilotPattern, ResourceGrid

    where = {
        "precision": "double" if streams.dtype == torch.float64 else "single",
        "device": str(streams.device),
    }
    mask = torch.zeros(1, 1, 1, groups, dtype=torch.bool)
    mask[..., ::comb] = True
    ones = torch.ones(1, 1, int(mask.sum()), dtype=streams.dtype.to_complex())
    pattern = PilotPattern(mask, ones, **where)
    grid = ResourceGrid(1, groups, subcarrier_spacing=1.0, pilot_pattern=pattern, **where)
    return LSChannelEstimator(grid, interpolation_type="lin", **where)


def _interpolate_pilots(
    estimator: LSChannelEstimator, pilots: Tensor, groups: int, comb: int
) -> Tensor:
    """Return [S, K, A, B, F] from the received pilots over their amplitude [S, K, A, B, pilots]."""
    trials, devices, antennas, blocks, carried = pilots.shape
    y = pilots.new_zeros(trials * devices * blocks, 1, antennas, 1, groups)
    y[..., ::comb] = pilots.permute(0, 1, 3, 2, 4).reshape(-1, 1, antennas, 1, carried)
    h_hat, _ = estimator(y, y.real.new_zeros(()))
    return h_hat.view(trials, devices, blocks, antennas, groups).transpose(2, 3)
