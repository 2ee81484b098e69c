"""Contract of a radio channel, and settings that channels share.

The signal-to-noise ratio is given in one of two ways. Normalised: `snr_db` is the budget on the
mean symbol power over the receiver's complex noise variance, at any distance. Physical: with
`path_loss_db`, the ratio follows from `tx_power_dbm`, `bandwidth_hz` and `noise_figure_db`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, Settings, declare_stackable
from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

DEFAULT_SNR_DB = 20.0

MAX_BUDGET_DB = 300.0
"""Largest power budget over the noise, and below it; single precision can still compute with it."""


class ChannelSettings(Settings):
    """Common keys of the sections of all channels."""

    snr_db: Decibels | None = declare_stackable(None)
    """normalised SNR in dB; 20 if neither it nor path_loss_db is given"""
    path_loss_db: Decibels | None = declare_stackable(None, ge=0)
    """path loss of every device in dB, with which the SNR is physical; by default the SNR is
    normalised"""
    tx_power_dbm: Decibels = declare_stackable(20.0)
    """transmit power budget of a device in dBm (0.1 W by default), from which its energy in joules
    follows"""
    bandwidth_hz: float = declare_stackable(1e6, ge=1e-6, le=1e15)
    """bandwidth of the uplink in Hz, with one symbol per second and hertz"""
    noise_figure_db: Decibels = declare_stackable(5.0, ge=0)
    """receiver noise figure in dB over -174 dBm/Hz"""
    snr_growth: float = declare_stackable(0.0, ge=0, le=8)
    """power of the round by which the SNR grows, (t + 1)^growth, by a falling noise: 2 adds
    20 log10(t + 1) dB in round t"""
    device_budget_db: tuple[Decibels, ...] = ()
    """power budget of each device in dB relative to snr_db or tx_power_dbm; the list is repeated
    over the devices. All are equal by default"""

    def find_conflicts(self) -> Iterator[str]:
        if self.snr_db is not None and self.path_loss_db is not None:
            yield (
                f"expected snr_db or path_loss_db, got both ({self.snr_db:g} and "
                f"{self.path_loss_db:g}); leave one of them out"
            )

    @property
    def implied_settings(self) -> Mapping[str, Any]:
        """Normalised SNR that holds if the section gives none."""
        bare = self.model_copy(update={"snr_db": None})
        return {} if bare.is_physical else {"snr_db": DEFAULT_SNR_DB}

    @property
    def is_physical(self) -> bool:
        """Whether budgets are watts over thermal noise; otherwise they are an SNR at gain 1."""
        return self.path_loss_db is not None


class FadingSettings(ChannelSettings):
    """Common keys of the sections of fading channels."""

    antennas: int = Field(1, ge=1)
    """number of antennas of the server, A"""
    antenna_correlation: float = Field(0.0, ge=0, lt=1)
    """correlation r of neighbouring antennas; antennas a and b have r^|a-b|"""
    block_symbols: int | None = Field(None, ge=1)
    """channel uses of a coherence block, all sub-carriers together; if not given, the channel is
    constant over a payload"""
    speed_kmh: float | None = Field(None, ge=0, le=1e9)
    """speed of the devices in km/h, which correlates fading over blocks and rounds (Jakes); if not
    given, fading is independent"""
    carrier_hz: float = Field(3.5e9, gt=0, le=1e15)
    """carrier frequency in Hz"""
    round_interval_s: float = Field(1.0, gt=0, le=1e9)
    """seconds between the payloads of two rounds, for the correlation of fading"""


@dataclass(frozen=True)
class Ground:
    """Map of a place.

    Parameters
    ----------
    x_m, y_m : ndarray [X] and [Y]
        Coordinates of its cells in metres.
    coverage_db : ndarray [Y, X]
        Gain to the base station in dB, in the unit of the devices' large-scale gains; NaN if
        unknown.
    roof_m : ndarray [Y, X]
        Height of buildings in metres, 0 in the street.
    attribution : str
        Source of the map data.
    """

    x_m: np.ndarray
    y_m: np.ndarray
    coverage_db: np.ndarray
    roof_m: np.ndarray
    attribution: str


@dataclass(frozen=True)
class Positions:
    """Positions of a trial's devices and base stations.

    Parameters
    ----------
    device_m : ndarray [K, 2]
        Positions of the devices in metres.
    base_m : ndarray [B, 2]
        Positions of the base stations in metres.
    ground : Ground, optional
        Map of the place.
    path_m : ndarray [K, M, 2], optional
        Positions along the paths of the devices, if they are known in advance.
    """

    device_m: np.ndarray
    base_m: np.ndarray
    ground: Ground | None = None
    path_m: np.ndarray | None = None


EstimateFn = Callable[[Callable[[int], Tensor], Tensor, int], Tensor | None]
"""Function that estimates paths, with the arguments and result of `Csi.estimate_paths`."""


def _use_true_paths(paths: Callable[[int], Tensor], gain: Tensor, round: int) -> None:
    """Return None, which stands for the true paths."""


@dataclass(frozen=True)
class InterfererMap:
    """Devices of other servers that reach each row of a stack.

    Parameters
    ----------
    row_index : Tensor, int64 [S, J]
        Rows whose devices reach a row. A row occurs once for each place at which its devices are
        seen.
    shift_m : Tensor, float [S, J, 2]
        Displacement from a row's server to theirs in metres, for channels with positions.
    gain : float
        Mean power gain relative to a device's link to its own server, for channels without
        positions.
    streams : Streams
        Random streams of the links.
    """

    row_index: Tensor
    shift_m: Tensor
    gain: float
    streams: Streams

    def gather_devices(self, table: Tensor) -> Tensor:
        """Select a table [S, K, ...] for the other servers' devices, [S, J K, ...]."""
        return table[self.row_index].flatten(1, 2)

    def gather_budget(self, own: LinkBudget) -> LinkBudget:
        """Return the link budget of the other servers' devices."""
        gain, budget = self.gather_devices(own.gain), self.gather_devices(own.budget)
        return replace(own, gain=self.gain * gain, budget=budget)


class Channel(ABC):
    """Radio channel, which gives h of every round for S trials over K devices.

    A subclass has a class `Settings`, precomputes in `prepare`, and returns a state in `get_state`.
    `otafl list NAME` prints an example scenario of each built-in channel.

    Parameters
    ----------
    settings : Settings
        Settings of the channel; trials differ only in stackable fields.
    budget : LinkBudget
        Power budgets and large-scale gains of the trials.
    devices : int
        Number of devices, K.
    streams : Streams
        Random streams of the trials.
    hyper : Hyper, optional
        Stackable fields, [S] each.
    """

    has_positions: ClassVar[bool] = False
    """Whether gains follow from the positions of devices and servers."""

    is_gaussian: ClassVar[bool] = False
    """Whether h is complex normal if closed forms hold.

    An estimate with a normal error then is complex normal too.
    """

    num_sounded_paths: int = 0
    """Paths of a device that are sounded besides its channel in each coherence block.

    A reflecting surface is set by the estimates of these paths.
    """

    estimate_fn: EstimateFn = staticmethod(_use_true_paths)
    """Estimate of the sounded paths; by default the true paths."""

    correlation_rounds: int = 1
    """Rounds after which fading is practically independent; 1 if it is new in each round."""

    round_trip_s: float = 0.0
    """Delay of the path in both directions in seconds, by which each slot lasts longer."""

    presence_s: np.ndarray | None = None
    """Seconds [K, 2] from which and until which each device is present; None if all always are."""

    has_closed_form: bool = False
    """Whether E|h|^2 = 1 and the closed forms below hold, which are for one antenna.

    Otherwise averages over drawn states replace them.
    """

    class Settings(ChannelSettings):
        """Section `channel` of a scenario."""

    def __init__(
        self,
        settings: Any,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper | None = None,
    ) -> None:
        self.settings, self.budget, self.devices = settings, budget, devices
        self.streams, self.hyper = streams, hyper or {}
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Compute everything that is constant during a run.

        It is called once, when the channel is made.
        """

    @abstractmethod
    def get_state(self, round: int) -> ChannelState:
        """Return the channel of a round.

        Parameters
        ----------
        round : int
            The round, at most 2^40. Rounds below 0 are before the run, for delayed estimates. The
            state depends only on the round, not on earlier calls.

        Returns
        -------
        ChannelState
            h, complex [S, K, A, 1, F] with E|h|^2 = 1, and the linear large-scale power gain [S,
            K].
        """

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        """Return the state of a round for some devices.

        The state of other devices may be any finite number. By default all are computed; a channel
        that can, computes less.

        Parameters
        ----------
        round : int
            The round.
        devices : Tensor, int64 [n]
            Devices of any trial.

        Returns
        -------
        ChannelState
            State with the shapes of `get_state`.
        """
        return self.get_state(round)

    def set_time(self, round: int, time_s: np.ndarray) -> None:  # noqa: B027 (most do not move)
        """Take the clock's time [S] at the start of a round, on which positions can depend.

        By default it has no effect.
        """

    def get_large_scale_state(self, round: int) -> ChannelState:
        """Return a state with the shapes and large-scale gains of a round.

        Its h may be that of no device.
        """
        no_device = torch.empty(0, dtype=torch.int64, device=self.streams.device)
        return self.get_state_of_devices(round, no_device)

    def get_positions(self, round: int, trial: int = 0) -> Positions | None:
        """Return the positions of a trial's devices and server; None for a channel without them."""
        return None

    def make_interfering(self, interferers: InterfererMap) -> Channel:
        """Return the channel from other servers' devices to the rows.

        It has the same distribution, with other draws and gains.
        """
        budget = interferers.gather_budget(self.budget)
        devices = budget.gain.shape[1]
        return type(self)(self.settings, budget, devices, interferers.streams, self.hyper)

    @property
    def unit_mean_amplitude(self) -> float | Tensor | None:
        """E|h| at large-scale gain 1: a number, [S, 1] or [S, K]; None without a closed form."""
        return None

    def compute_mean_inverse(
        self, threshold: float, gain: float, error_variance: float
    ) -> float | None:
        """Compute E[1/g; g >= threshold] of a device's estimated power gain g.

        Parameters
        ----------
        threshold : float
            Linear threshold, above 0.
        gain : float
            Large-scale power gain of the device.
        error_variance : float
            Variance of the estimate's complex normal error e, at E|h|^2 = 1.

        Returns
        -------
        float or None
            Mean of 1/g over g = gain |h + e|^2 at or above the threshold, and of 0 below it; None
            without a closed form.
        """
        return None


def compute_unit_gain(gain: Tensor, budget: LinkBudget) -> Tensor:
    """Return the gain [S, 1] that counts as one: the mean of gains [S, K] for a normalised SNR."""
    mean = gain.mean(1, keepdim=True)
    return torch.where(budget.is_physical[:, None], torch.ones_like(mean), mean)


def note_range(
    channel: str, key: str, value: float, ranges: Iterable[tuple[float, float]], source: str
) -> Iterator[str]:
    """Yield a note if a key's value is in none of the ranges in which the channel is valid."""
    if not any(low <= value <= high for low, high in ranges):
        texts = (f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in ranges)
        yield (
            f"channel.{key}: {value:g} is outside the range in which channel '{channel}' is valid "
            f"({' or '.join(texts)}; {source})"
        )


def _compute_row(
    section: ChannelSettings, devices: int
) -> tuple[tuple[float, float, float], np.ndarray]:
    """Compute gain, unit power [W] and bandwidth [Hz] of a trial, and its budgets [K]."""
    tx_power_w = dbm_to_watt(section.tx_power_dbm)
    gain = 1.0 if section.path_loss_db is None else db_to_linear(-section.path_loss_db)
    if section.is_physical:
        unit_w = noise_power_w(section.bandwidth_hz, section.noise_figure_db)
    else:
        snr_db = section.implied_settings["snr_db"] if section.snr_db is None else section.snr_db
        unit_w = tx_power_w / db_to_linear(snr_db)
    offsets = [db_to_linear(offset) for offset in section.device_budget_db] or [1.0]
    budgets = np.resize([tx_power_w / unit_w * offset for offset in offsets], devices)
    return (gain, unit_w, section.bandwidth_hz), budgets


def compute_link_budget(
    sections: Sequence[ChannelSettings],
    devices: int,
    streams: Streams,
    power_db: np.ndarray | None = None,
) -> LinkBudget:
    """Compute the power budgets and gains of S trials over K devices.

    With `path_loss_db`, or on a channel with its own path loss and without `snr_db`, budgets are
    physical: transmit power over thermal noise in the band, and the path loss is the gain.
    Otherwise `snr_db` is the budget at gain 1.

    Parameters
    ----------
    sections : sequence of ChannelSettings [S]
        Settings of the channel in each trial.
    devices : int
        Number of devices, K.
    streams : Streams
        Random streams of the S trials.
    power_db : ndarray [S, K], optional
        Power budgets of the devices relative to the channel's, in dB.

    Returns
    -------
    LinkBudget
        Budgets over the noise, and gains, [S, K] each.

    Raises
    ------
    UserError
        If a budget is more than 300 dB above or below the noise.
    """
    rows, budgets = zip(*(_compute_row(section, devices) for section in sections), strict=True)
    device = streams.device
    gain, unit_power_w, bandwidth_hz = torch.tensor(rows, dtype=torch.float64, device=device).T
    over_noise = np.stack(budgets)
    if power_db is not None:
        over_noise = over_noise * db_to_linear(power_db)
    levels_db = 10.0 * np.log10(over_noise)
    if np.abs(levels_db).max() > MAX_BUDGET_DB + 1e-6:
        raise UserError(
            f"channel: expected power budgets from -{MAX_BUDGET_DB:g} to {MAX_BUDGET_DB:g} dB over "
            f"the noise, got {levels_db.min():.0f} to {levels_db.max():.0f} dB; change snr_db, "
            "tx_power_dbm, bandwidth_hz, device_budget_db or devices.compute.power_db"
        )
    budget = torch.from_numpy(over_noise).to(device, streams.dtype)
    return LinkBudget(
        budget=budget,
        gain=gain.to(streams.dtype)[:, None].expand(-1, devices),
        unit_power_w=unit_power_w,
        bandwidth_hz=bandwidth_hz.to(streams.dtype),
        is_physical=torch.tensor([section.is_physical for section in sections], device=device),
    )
