"""Channel estimates from pilots. A device sends L pilots of power P on a coherence cell, a
coherence block of a sub-carrier group, and the receiver hears y = sqrt(beta P) h + n, n ~
CN(0, 1), at each antenna.

Least squares: h_ls = mean(y) / sqrt(beta P) = h + e, e ~ CN(0, 1 / (L P beta)). The mean over the
pilots is a sufficient statistic, so it is drawn in one piece. MMSE on a flat cell of E|h|^2 = 1,
which is known: h_mmse = h_ls / (1 + 1 / (L P beta)). Kay 1993, "Fundamentals of Statistical Signal
Processing: Estimation Theory". With a comb, only one group in so many carries pilots, and Sionna's
LS estimator interpolates linearly between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otafl.channels.config import PilotsCsiConfig
from otafl.channels.sionna_rng import keep_global_state
from otafl.core.contracts import Channel, Hyper, LinkBudget
from otafl.core.rng import Streams
from otafl.csi.csi import device_errors

if TYPE_CHECKING:
    from sionna.phy.ofdm import LSChannelEstimator


class Pilots:
    """variance: where it is the same for all devices of a trial, for least squares on every group.
    pilot_symbols: channel uses of a device in each coherence block."""

    def __init__(
        self,
        config: PilotsCsiConfig,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self._config, self._streams = config, streams
        self._energy = config.length * budget.budget * 10.0 ** (hyper["power_db"][:, None] / 10.0)
        start = channel.state(0)
        groups = start.h.shape[4]
        self._comb = min(config.comb, groups)
        self.pilot_symbols = config.length * -(-groups // self._comb)
        self._interpolate = None
        if self._comb > 1:
            self._interpolate = ls_estimator(groups, self._comb, streams)
        error = self.error_variance(start.gain)
        known = config.estimator == "ls" and self._comb == 1
        alike = torch.equal(start.gain, budget.gain) and bool((error == error[:, :1]).all())
        self.variance = error[:, 0] if known and alike else None

    def error_variance(self, gain: Tensor) -> Tensor:
        """[S, K]: 1 / (L P beta), of the least-squares estimate where there are pilots."""
        return 1.0 / (self._energy * gain)

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        error = self.error_variance(gain)[:, :, None, None, None]
        pilots = h[..., :: self._comb]
        h_ls = pilots + device_errors(self._streams, "csi_pilots", round, pilots, error)
        if self._interpolate is not None:
            return _interpolated(self._interpolate, h_ls, h.shape[4], self._comb)
        return h_ls if self._config.estimator == "ls" else h_ls / (1.0 + error)


def ls_estimator(groups: int, comb: int, streams: Streams) -> LSChannelEstimator:
    """Sionna's least-squares estimator on one OFDM symbol of so many sub-carriers, one in `comb` of
    them with a pilot of value 1, linear interpolation and, past the last pilot, extrapolation."""
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


def _interpolated(estimator: LSChannelEstimator, pilots: Tensor, groups: int, comb: int) -> Tensor:
    """[S, K, A, B, F] from the received pilots over their amplitude [S, K, A, B, pilots]."""
    trials, devices, antennas, blocks, carried = pilots.shape
    y = pilots.new_zeros(trials * devices * blocks, 1, antennas, 1, groups)
    y[..., ::comb] = pilots.permute(0, 1, 3, 2, 4).reshape(-1, 1, antennas, 1, carried)
    h_hat, _ = estimator(y, y.real.new_zeros(()))
    return h_hat.view(trials, devices, blocks, antennas, groups).transpose(2, 3)
