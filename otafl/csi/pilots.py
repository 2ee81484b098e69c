"""Channel estimation from pilots, by least squares or with the smallest mean squared error.

Each device sends pilots in each coherence block, which are counted as side information. There are L
pilots of power P in a cell, a coherence block of a sub-carrier group. From each, every antenna
receives y = sqrt(beta P) h + n, n ~ CN(0, 1).

Least squares gives

    h_ls = mean(y) / sqrt(beta P) = h + e,   e ~ CN(0, 1 / (L P beta)).

The mean over the pilots is a sufficient statistic, so it is drawn directly. The MMSE estimate on a
flat cell with E|h|^2 = 1, which is known, is h_mmse = h_ls / (1 + 1 / (L P beta)). With a comb,
only every n-th group has pilots, and Sionna's LS estimator interpolates linearly between them.

Each path by which a reflecting surface is set has L pilots of its own in a block. It is estimated
by least squares, because its mean power counts as unknown.

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

from otafl.channels.fading import keep_global_state
from otafl.core.rng import Streams, declare_family, declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi, draw_device_errors, draw_path_errors

if TYPE_CHECKING:
    from sionna.phy.ofdm import LSChannelEstimator

PILOTS = declare_purpose("csi_pilots", __name__)
PATH_PILOTS = declare_family("csi_path_pilots", __name__)

MIN_GAIN = 1e-30
"""Smallest gain that is divided by; without received pilots, the estimate is finite noise."""


class Pilots(Csi):
    """Channel estimation from pilots.

    The variance of the error is known if it is equal for all devices of a trial, for least squares
    in every group.
    """

    class Settings(Csi.Settings):
        name: Literal["pilots"] = "pilots"
        estimator: Literal["ls", "mmse"] = "ls"
        """estimate of each coherence block and sub-carrier group: least squares (ls), or smallest
        mean squared error with known mean power (mmse)"""
        length: int = Field(1, ge=1)
        """number of pilots in a block, in each sub-carrier group with pilots"""
        power_db: Decibels = declare_stackable(0.0)
        """power of a pilot in dB over the device's budget"""
        comb: int = Field(1, ge=1)
        """distance of sub-carrier groups with pilots; estimates of the groups between them are
        interpolated linearly. By default all groups have pilots"""

        def find_conflicts(self) -> Iterator[str]:
            if self.estimator == "mmse" and self.comb > 1:
                yield (
                    "estimator: 'mmse' needs pilots in each sub-carrier group, got comb: "
                    f"{self.comb}; use comb: 1 or estimator: ls"
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
        """Compute the error variance 1 / (L P beta) of the least-squares estimate, [S, K]."""
        return 1.0 / (self._energy * gain.clamp_min(MIN_GAIN))

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        r"""Estimate h from pilots, complex [S, K, A, B, F].

        Notes
        -----
        .. math::

            \hat h_{LS} = h + e, \quad e \sim CN(0, 1 / (L P \beta)), \quad
            \hat h_{MMSE} = \frac{\hat h_{LS}}{1 + 1 / (L P \beta)}
        """
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
    """Build Sionna's least-squares estimator for a comb of pilots.

    It interpolates linearly, and extrapolates beyond the last pilot.

    Parameters
    ----------
    groups : int
        Sub-carriers of one OFDM symbol.
    comb : int
        Distance of the sub-carriers with a pilot of value 1.
    streams : Streams
        Precision and torch device.

    Returns
    -------
    LSChannelEstimator
        The estimator.
    """
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
    """Interpolate received pilots [S, K, A, B, pilots] to all groups, [S, K, A, B, F].

    The pilots are divided by their amplitude.
    """
    trials, devices, antennas, blocks, carried = pilots.shape
    y = pilots.new_zeros(trials * devices * blocks, 1, antennas, 1, groups)
    y[..., ::comb] = pilots.permute(0, 1, 3, 2, 4).reshape(-1, 1, antennas, 1, carried)
    h_hat, _ = estimator(y, y.real.new_zeros(()))
    return h_hat.view(trials, devices, blocks, antennas, groups).transpose(2, 3)
