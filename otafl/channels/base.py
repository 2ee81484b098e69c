"""Define the contract of a radio channel, and the settings that channels share.

The signal-to-noise ratio is said in one of two ways. Normalised: `snr_db` is the budget on the mean
symbol power over the receiver's complex noise variance, whatever the distance. Physical: with
`path_loss_db`, the ratio follows from `tx_power_dbm`, `bandwidth_hz` and `noise_figure_db`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.positions import Positions
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.renamed import Renamed
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, Settings, declare_stackable
from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

DEFAULT_SNR_DB = 20.0


class ChannelSettings(Settings):
    """Every channel's section may hold these keys."""

    snr_db: Decibels | None = declare_stackable(None)
    """normalised SNR in dB; 20 if neither it nor path_loss_db is given"""
    path_loss_db: Decibels | None = declare_stackable(None, ge=0)
    """path loss in dB of every device; then the SNR is physical"""
    tx_power_dbm: Decibels = declare_stackable(20.0)
    """transmit power budget of a device in dBm (0.1 W); joules follow from it"""
    bandwidth_hz: float = declare_stackable(1e6, gt=0)
    """uplink bandwidth; one symbol a second and hertz"""
    noise_figure_db: Decibels = declare_stackable(5.0, ge=0)
    """receiver noise figure in dB over -174 dBm/Hz"""
    snr_growth: float = declare_stackable(0.0, ge=0, le=8)
    """power of the round by which the SNR grows, (t + 1)^growth, by a falling noise: 2 adds
    20 log10(t + 1) dB in round t"""
    device_budget_db: tuple[Decibels, ...] = ()
    """each device's power budget in dB relative to snr_db or tx_power_dbm; the list is repeated
    over the devices"""

    def find_conflicts(self) -> Iterator[str]:
        if self.snr_db is not None and self.path_loss_db is not None:
            yield "snr_db and path_loss_db are two ways to say the same thing; give one of them"

    @property
    def implied_settings(self) -> Mapping[str, Any]:
        """Return the normalised SNR that holds where the section gives none."""
        bare = self.model_copy(update={"snr_db": None})
        return {} if bare.is_physical else {"snr_db": DEFAULT_SNR_DB}

    @property
    def is_physical(self) -> bool:
        """Say whether budgets are watts over thermal noise; else they are an SNR at gain 1."""
        return self.path_loss_db is not None


class FadingSettings(ChannelSettings):
    """The section of a channel that fades may hold these keys."""

    antennas: int = Field(1, ge=1)
    """antennas of the server, A"""
    antenna_correlation: float = Field(0.0, ge=0, lt=1)
    """correlation of neighbouring antennas; r^|a-b| at larger distance"""
    block_symbols: int | None = Field(None, ge=1)
    """channel uses of a coherence block, all sub-carriers together; without it the channel lasts
    for the whole payload"""
    speed_kmh: float | None = Field(None, ge=0)
    """speed of the devices: fading is correlated over blocks and rounds (Jakes); without it, it is
    independent"""
    carrier_hz: float = Field(3.5e9, gt=0)
    """carrier frequency"""
    round_interval_s: float = Field(1.0, gt=0)
    """seconds between the payloads of two rounds, as the fading sees it"""


EstimateFn = Callable[[Callable[[int], Tensor], Tensor, int], Tensor | None]
"""What is believed of paths, as `otafl.csi.base.Csi.estimate_paths` says it."""


def _use_true_paths(paths: Callable[[int], Tensor], gain: Tensor, round: int) -> None:
    """Return None, by which the paths are believed to be what they are."""


@dataclass(frozen=True)
class InterfererMap:
    """Say which devices of other servers reach each row of a stack.

    Parameters
    ----------
    row_index : [S, J] int64, the rows whose devices do. A row is there once for each place at which
        its devices are seen.
    shift_m : [S, J, 2] from a row's server to theirs, metres, where a channel has places.
    gain : mean power gain over a device's link to its own server, where it has none.
    streams : of what is drawn for them.
    """

    row_index: Tensor
    shift_m: Tensor
    gain: float
    streams: Streams

    def gather_devices(self, table: Tensor) -> Tensor:
        """Take a table [S, K, ...] of rows' own devices at the others' [S, J K, ...]."""
        return table[self.row_index].flatten(1, 2)

    def gather_budget(self, own: LinkBudget) -> LinkBudget:
        """Return the powers of the others' devices, and how much of them arrives."""
        gain, budget = self.gather_devices(own.gain), self.gather_devices(own.budget)
        return replace(own, gain=self.gain * gain, budget=budget)


class Channel(Renamed, ABC):
    """A radio channel gives h of every round, for S trials over K devices.

    Parameters
    ----------
    settings : the channel's, of its class `Settings`; trials differ in stackable fields alone.
    budget : what power the trials' devices have, and how much of it arrives.
    devices : K.
    streams : random streams of the trials.
    hyper : the stackable fields that are given, [S] each.
    """

    is_flat: ClassVar[bool] = False
    """h has one sub-carrier group and a round of it takes little memory: stacks of trials are not
    measured for its sake before they run."""

    has_positions: ClassVar[bool] = False
    """Gains follow from where devices and servers are."""

    is_gaussian: ClassVar[bool] = False
    """Where the closed forms hold, h is complex normal, which an estimate with a normal error then
    is too."""

    num_sounded_paths: int = 0
    """Paths of a device that are sounded beside its channel in each coherence block, for something
    in the channel, a reflecting surface, that is set by what is believed of them."""

    estimate_fn: EstimateFn = staticmethod(_use_true_paths)
    """What is believed of those paths: the truth, until channel state information says what."""

    correlation_rounds: int = 1
    """Rounds after which fading is as good as independent; 1: it is new in each."""

    has_closed_form: bool = False
    """E|h|^2 is 1 and the closed forms below hold, which are those of one antenna. Where it is
    false, averages over drawn states take their place."""

    class Settings(ChannelSettings):
        """Describe the section `channel` of a scenario."""

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
        """Work out what lasts for the run. Called once, when the channel is made."""

    @abstractmethod
    def get_state(self, round: int) -> ChannelState:
        """Return the channel of a round.

        Parameters
        ----------
        round : up to 2^40; those below 0 are the past of a run, which belated estimates go back to.
            The state is a function of it alone, whatever was asked before.

        Returns
        -------
        h [S, K, A, 1, F] complex with E|h|^2 = 1, and the large-scale power gain [S, K], linear.
        """

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        """Return the state of a round as far as some devices [n] int64, of any trial, go; what is
        said of others may be anything finite. By default the state of all: a channel does less that
        can."""
        return self.get_state(round)

    def get_large_scale_state(self, round: int) -> ChannelState:
        """Return the state of a round as to shapes and large-scale gains; h may be of nobody."""
        nobody = torch.empty(0, dtype=torch.int64, device=self.streams.device)
        return self.get_state_of_devices(round, nobody)

    def get_positions(self, round: int, trial: int = 0) -> Positions | None:
        """Return where a trial's devices and the server are in a round; None where a channel knows
        of no places."""
        return None

    def make_interfering(self, interferers: InterfererMap) -> Channel:
        """Return the channel from other servers' devices to the rows, alike but for its draws and
        gains."""
        budget = interferers.gather_budget(self.budget)
        devices = budget.gain.shape[1]
        return type(self)(self.settings, budget, devices, interferers.streams, self.hyper)

    @property
    def unit_mean_amplitude(self) -> float | Tensor | None:
        """Return E|h|, a number or [S, 1] or [S, K]; None where it is not known in closed form."""
        return None

    def compute_mean_inverse(
        self, threshold: float, gain: float, error_variance: float
    ) -> float | None:
        """Return E[1/g; g >= threshold] of what is believed of one device's power gain.

        Parameters
        ----------
        threshold : linear, above 0.
        gain : the device's large-scale power gain.
        error_variance : of the estimate's complex normal error e, where E|h|^2 = 1.

        Returns
        -------
        The mean of 1/g over g = gain |h + e|^2 from the threshold on, 0 below it; None where it is
        not known in closed form.
        """
        return None


def compute_link_budget(
    sections: Sequence[ChannelSettings],
    devices: int,
    streams: Streams,
    power_db: np.ndarray | None = None,
) -> LinkBudget:
    """Return the budgets of S trials over K devices.

    Physical, with `path_loss_db` or on a channel that has a path loss of its own and no `snr_db`:
    transmit power over thermal noise in the band, and the path loss is the gain; else `snr_db` is
    the budget at gain 1.

    Parameters
    ----------
    sections : S, the channel's settings of each trial.
    devices : K.
    streams : of the S trials.
    power_db : [S, K] dB that devices' budgets are above the channel's.
    """
    rows, budgets, device = [], [], streams.device
    for section in sections:
        tx_power_w = dbm_to_watt(section.tx_power_dbm)
        gain = 1.0 if section.path_loss_db is None else db_to_linear(-section.path_loss_db)
        if section.is_physical:
            unit_w = noise_power_w(section.bandwidth_hz, section.noise_figure_db)
        else:
            snr_db = (
                section.implied_settings["snr_db"] if section.snr_db is None else section.snr_db
            )
            unit_w = tx_power_w / db_to_linear(snr_db)
        rows.append((gain, unit_w, section.bandwidth_hz))
        offsets = [db_to_linear(offset) for offset in section.device_budget_db] or [1.0]
        budgets.append(np.resize([tx_power_w / unit_w * offset for offset in offsets], devices))
    numbers = torch.tensor(rows, dtype=torch.float64).T.to(device, streams.dtype)
    gain, unit_power_w, bandwidth_hz = numbers
    budget = torch.from_numpy(np.stack(budgets)).to(device, streams.dtype)
    if power_db is not None and power_db.any():
        budget = budget * torch.from_numpy(db_to_linear(power_db)).to(budget)
    return LinkBudget(
        budget=budget,
        gain=gain[:, None].expand(-1, devices),
        unit_power_w=unit_power_w,
        bandwidth_hz=bandwidth_hz,
        is_physical=torch.tensor([section.is_physical for section in sections], device=device),
    )
