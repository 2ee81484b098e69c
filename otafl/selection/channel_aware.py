"""Selections by the estimated channels of the devices."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.core.contracts import ChannelState
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.selection.base import (
    Devices,
    NumWanted,
    Selection,
    SelectionSetup,
    draw_random_key,
    select_lowest,
    to_host,
)


class BestChannel(Selection):
    """Devices with the largest estimated channel gains (opportunistic scheduling).

    The gain includes path loss. Of K devices with independent Rayleigh fading and one mean gain,
    the best has H_K = 1 + 1/2 + ... + 1/K times the mean.

    References
    ----------
    Knopp, Humblet 1995, "Information Capacity and Power Control in Single-Cell Multiuser
        Communications".

    Examples
    --------
    `studies/analog_vs_digital/analog_vs_digital.yaml` uses it.
    """

    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["best_channel"] = "best_channel"

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return select_lowest(-to_host(self.setup.estimate_gains(state, round)), available, wanted)[
            0
        ]


class Threshold(Selection):
    """Devices whose estimated SNR is above a threshold, uniformly chosen if they are too many.

    Devices below the threshold do not train in the round. Of the others `devices.participants`, if
    it is given, take part at most. Under Rayleigh fading of mean SNR s a device takes part with
    probability exp(-threshold / s). A round without a device above the threshold changes nothing.

    Examples
    --------
    `docs/devices.md` has a scenario with `selection: threshold`.
    """

    is_narrowing: ClassVar[bool] = True
    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["threshold"] = "threshold"
        min_snr_db: Decibels = declare_stackable(10.0)
        """least estimated SNR at full power, budget times channel gain, in dB"""

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._least = db_to_linear(setup.hyper["min_snr_db"][:, None])

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        snr = self.setup.estimate_snr(state, round)
        candidates = available & (snr >= self._least).cpu().numpy()
        if np.min(wanted) >= available.shape[1]:
            return candidates
        return select_lowest(
            draw_random_key(self.setup.streams, round, available.shape[1]), candidates, wanted
        )[0]


LEAST = 1e-200
"""Smallest throughput, of a device that was not served for a very long time."""


class ProportionalFair(Selection):
    r"""Devices with the largest rates relative to their average throughput (proportional fairness).

    Proportional fair scheduling, with the average throughput [S, K] in bits a symbol as state.

    Notes
    -----
    R_k is the rate of device k, and T_k its average throughput over t_c rounds, with R_k = 0 in the
    second equation if it is not served:

    .. math::

        R_k(t) = \log_2(1 + P_k |h_k|^2)

    .. math::

        T_k(t + 1) = (1 - 1/t_c) T_k(t) + R_k(t) / t_c

    Devices with the largest R_k / T_k are served. T_k starts at the device's fair share of its rate
    at mean gain.

    References
    ----------
    Viswanath, Tse, Laroia 2002, "Opportunistic Beamforming Using Dumb Antennas".

    Examples
    --------
    `docs/devices.md` has a scenario with `selection: proportional_fair`.
    """

    state_attrs: ClassVar = ("_throughput",)
    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["proportional_fair"] = "proportional_fair"
        window: float = declare_stackable(100.0, ge=1)
        """t_c, number of rounds over which a device's rate is averaged"""

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._budget = to_host(setup.budget.budget)
        self._share = 1.0 / to_host(setup.hyper["window"])[:, None]
        self._throughput: np.ndarray | None = None

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        if self._throughput is None:
            at_mean = np.log2(1.0 + self._budget * to_host(state.gain))
            share = np.minimum(1.0, np.broadcast_to(wanted, len(available)) / available.shape[1])
            self._throughput = at_mean * share[:, None]
        rate = np.log2(1.0 + self._budget * to_host(self.setup.estimate_gains(state, round)))
        chosen, _ = select_lowest(-rate / self._throughput.clip(LEAST), available, wanted)
        self._throughput += self._share * (rate * chosen - self._throughput)
        return chosen
