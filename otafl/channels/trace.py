"""Replay measured or simulated channels from a file.

A trace is a NetCDF-4 file (any HDF5 file with these data sets at its root will do):

    attributes    schema         "otafl-trace-1"
                  carrier_hz     carrier frequency
                  bandwidth_hz   band that h covers
    either        h_real, h_imag (round, device, antenna, group): frequency responses at the centres
                                 of equal groups of sub-carriers
    or            a_real, a_imag (round, device, antenna, path): impulse responses, complex
                                 amplitudes at the carrier
                  tau_s          (round, device, path) or (device, path): their delays in seconds
    optional      gain           (round, device) or (device): linear large-scale power gains, and h
                                 or a has a mean power of one; without it, a device's gain is the
                                 mean power of its responses over the file, which is taken out of
                                 them
                  position_m     (round, device, 3) or (device, 3), with base_m (3): metres
                  x_m, y_m, coverage_db (y, x), roof_m (y, x): the place from above

A run's devices are the file's first ones, or others in each trial (`places`); a run that is longer
than the file starts it again. A device whose responses are zero has no path: it is silent. Impulse
responses are evaluated on the run's own bandwidth. The file is held in memory. `export_trace` and
`export_impulse_responses` write such files, and scripts/ray_trace.py those of traced places, of
which the ones in the folder `scenes` come along (`scene`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, ChannelSettings
from otafl.channels.fading import build_block_state
from otafl.channels.ofdm import delay_rotations, frequency_response, group_frequencies
from otafl.channels.positions import Positions
from otafl.channels.trace_files import Responses, read, write
from otafl.core.contracts import ChannelState, LinkBudget, Paths
from otafl.core.errors import UserError
from otafl.core.rng import declare_purpose

START = declare_purpose("trace_start", __name__)
PLACES = declare_purpose("trace_places", __name__)

SCENES = Path(__file__).parent / "scenes"
"""The folder of the traced places."""

KEPT = 1 << 22
"""Numbers of responses that are kept at most."""


class Trace(Channel):
    """Give h [S, K, A, B, F] complex; E|h|^2 = 1 over the file's rounds, antennas and groups."""

    class Settings(ChannelSettings):
        example: ClassVar = {"channel.scene": "munich"}
        reads: ClassVar = ("path",)

        name: Literal["trace"] = "trace"
        path: str | None = Field(None, min_length=1)
        """NetCDF-4 or HDF5 file; relative paths count from the working directory"""
        scene: Literal["etoile", "florence", "munich"] | None = None
        """in place of path, a place whose rays were traced: 96 pedestrians around a base station
        with 8 antennas over the roofs at 3.5 GHz, a metre further in each of 12 rounds; some have
        no path (map data: OpenStreetMap contributors, ODbL)"""
        start: Literal["zero", "per_trial"] = "per_trial"
        """zero: round 0 is the file's first round; per_trial: each trial starts at a random round
        of the file. Past its last round the file starts again, and before its first, where a
        belated estimate looks, is its last"""
        places: Literal["first", "per_trial"] = "first"
        """first: devices are the file's first ones; per_trial: each trial draws which of them"""
        antennas: int | None = Field(None, ge=1)
        """antennas of the server, the file's first ones; else all"""
        gains: Literal["relative", "absolute"] = "relative"
        """relative: the file's gains over their mean, so that snr_db is the mean SNR; absolute:
        they are path gains, and budgets are tx_power_dbm over thermal noise"""
        subcarrier_groups: int | None = Field(None, ge=1)
        """groups of sub-carriers over bandwidth_hz that impulse responses are evaluated on (default
        1); frequency responses have their own"""
        block_symbols: int | None = Field(None, ge=1)
        """channel uses of a coherence block; the blocks of a payload then take the file's rounds
        from its own on. Without it, the channel lasts for the whole payload"""

        def find_conflicts(self) -> Iterator[str]:
            yield from super().find_conflicts()
            if (self.path is None) == (self.scene is None):
                yield "path, a file, or scene, the name of a traced place: one of them is needed"
            given = next(
                (key for key in ("snr_db", "path_loss_db") if getattr(self, key) is not None), ""
            )
            if self.gains == "absolute" and given:
                yield (
                    f"gains 'absolute' takes the path loss from the file; leave {given} out, or "
                    "set gains to relative"
                )

        @property
        def file(self) -> str:
            """Return the path of the file."""
            return self.path or str(SCENES / f"{self.scene}.nc")

        @property
        def file_entry(self) -> str:
            """Return the key that chooses the file, and its value."""
            return f"channel.{'path' if self.path else 'scene'}: '{self.path or self.scene}'"

        @property
        def is_physical(self) -> bool:
            return self.gains == "absolute" or super().is_physical

    settings: Settings

    def prepare(self) -> None:
        settings, streams, devices = self.settings, self.streams, self.devices
        self._file = file = read(settings.file)
        rounds, known, antennas = file.response.shape[:3]
        if known < devices:
            raise UserError(
                f"{settings.file_entry} has {known} devices and the scenario {devices}; "
                f"devices.count of {known} or less would do"
            )
        if (settings.antennas or 1) > antennas:
            raise UserError(
                f"channel.antennas: {settings.antennas}, but {settings.file_entry} has {antennas}; "
                "that or less would do"
            )
        place, ctype = streams.device, streams.dtype.to_complex()
        picked = devices if settings.places == "first" else known
        response = file.response[:, :picked, : settings.antennas]
        self._response = torch.from_numpy(response).to(place, ctype)
        self._frequency = _get_frequencies(settings, file, self.budget)
        self._delay = None
        if file.delay_s is not None:
            delay = torch.from_numpy(file.delay_s[:, :picked]).to(place, torch.float64)
            self._delay = delay.expand(rounds, -1, -1)
        self._rounds, self._chosen = rounds, self._draw_devices(known)
        self._gain = self._compute_gains(picked).to(streams.dtype)
        self._kept: dict[int, Tensor] = {}
        self._start = torch.zeros(streams.num_trials, dtype=torch.int64, device=place)
        if settings.start == "per_trial":
            self._start = (streams.draw_uniform(START, 0, ()) * rounds).long()

    def get_state(self, round: int) -> ChannelState:
        """Return the channel of round (start + round) mod R of the file."""
        h = self._read_cached(round % self._rounds)[:, :, :, None]
        trial = torch.arange(len(self._start), device=self._start.device)
        gain = self._gain[self._get_file_round(round), trial] * self.budget.gain
        paths = None if self._delay is None else functools.partial(self._read_paths, round)
        later = functools.partial(self._read_blocks, round)
        return build_block_state(h, gain, self.settings.block_symbols, later, paths)

    def get_positions(self, round: int, trial: int = 0) -> Positions | None:
        first = int(self._get_file_round(round)[trial])
        found = self._file.get_positions(first, self._chosen[trial].cpu().numpy())
        if found is None or found.ground is None:
            return found
        level = found.ground.coverage_db - 10.0 * math.log10(float(self._unit[trial]))
        return replace(found, ground=replace(found.ground, coverage_db=level))

    def _get_file_round(self, round: int) -> Tensor:
        """Return the round [S] of the file."""
        return (self._start + round % self._rounds) % self._rounds

    def _draw_devices(self, known: int) -> Tensor:
        """Return which of the file's devices are the trials', [S, K]."""
        if self.settings.places == "per_trial":
            order = self.streams.draw_uniform(PLACES, 0, (known,)).argsort(1)
            return order[:, : self.devices]
        first = torch.arange(self.devices, device=self.streams.device)
        return first.expand(self.streams.num_trials, -1)

    def _compute_gains(self, picked: int) -> Tensor:
        """Return large-scale gains [R, S, K], float64, of so many of the file's devices."""
        settings, file = self.settings, self._file
        given = (
            self._take_out_gain() if file.gain is None else torch.as_tensor(file.gain[:, :picked])
        )
        whole = given.to(self.streams.device, torch.float64).expand(self._rounds, -1)
        if not bool(whole.ge(0).all()):
            device = int(whole.ge(0).logical_not().any(0).nonzero()[0])
            raise UserError(f"{settings.file_entry}: the gain of device {device} is below zero")
        gain = whole[:, self._chosen]
        mean = gain.mean((0, 2))
        if settings.gains == "absolute":
            mean = torch.ones_like(mean)
        elif settings.places == "first":
            mean = whole.mean().expand_as(mean)  # as of one trial, to the bit
        if not bool(mean.gt(0).all()):
            raise UserError(f"{settings.file_entry}: none of the {self.devices} devices has a path")
        self._unit = mean
        return gain / mean[:, None]

    def _read_blocks(self, round: int, blocks: int) -> Tensor:
        """Return [S, K, A, blocks, F], this round of the file and those after it."""
        first = self._start + round % self._rounds
        return torch.stack([self._read_rounds(first + block) for block in range(blocks)], 3)

    def _read_paths(self, round: int, blocks: int) -> Paths:
        """Return the impulse responses of this round of the file and those after it."""
        assert self._delay is not None
        first = self._start + round % self._rounds
        place = (first[:, None] + torch.arange(blocks, device=first.device)) % self._rounds
        place, chosen = place[:, None], self._chosen[:, :, None]  # [S, K, B]
        return Paths(self._response[place, chosen].movedim(3, 2), self._delay[place, chosen])

    def _read_cached(self, round: int) -> Tensor:
        """Return [S, K, A, F] as `_read_rounds`; rounds come again, and are kept as far as there is
        room."""
        h = self._kept.get(round)
        if h is None:
            h = self._read_rounds(self._start + round)
            if (len(self._kept) + 1) * h.numel() <= KEPT:
                self._kept[round] = h
        return h

    def _read_rounds(self, rounds: Tensor) -> Tensor:
        """Return [S, K, A, F] of the file's rounds [S], counted past its end."""
        place = rounds[:, None] % self._rounds
        response = self._response[place, self._chosen]
        if self._delay is None:
            return response
        delay = self._delay[place, self._chosen]
        rotation = delay_rotations(delay, self._frequency[:, None], response.real.dtype)
        return frequency_response(response, rotation[:, :, None])

    def _take_out_gain(self) -> Tensor:
        """Return the mean power [1, K] of a device's responses, which they are divided by.

        Impulse responses have that of their paths: groups are as if spread over a wide band.
        """
        power = self._response.abs().double().square()
        gain = power.mean((0, 2, 3)) if self._delay is None else power.sum(3).mean((0, 2))
        root = gain.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        self._response = (self._response / root[:, None, None]).to(self._response.dtype)
        return gain[None]


def export_trace(
    channel: Channel,
    rounds: Sequence[int],
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    trial: int = 0,
) -> None:
    """Write the states of a channel as a trace: the first coherence block of each round, with the
    large-scale gains.

    Parameters
    ----------
    channel : made with all that it needs, as by `otafl.channels.build`.
    rounds : of the channel, in the order that the file is to have them.
    path : of the file, NetCDF-4.
    carrier_hz, bandwidth_hz : what the file says of the responses.
    trial : which of the channel's stack.
    """
    states = [channel.get_state(round) for round in rounds]
    h = torch.stack([state.h[trial, :, :, 0] for state in states]).cpu().numpy()
    gain = torch.stack([state.gain[trial] for state in states]).cpu().numpy()
    gains = {"gain": (("round", "device"), gain)}
    write(path, carrier_hz, bandwidth_hz, h, "h", "group", gains)


def export_impulse_responses(
    a: Any,
    tau_s: Any,
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    direction: str = "uplink",
) -> None:
    """Write Sionna's impulse responses, of its channel models or its ray tracer, as a trace.

    Path loss in them becomes the gain. Rounds are the batch, and time within it. A device has one
    antenna.

    Parameters
    ----------
    a : [batch, num_rx, rx_ant, num_tx, tx_ant, paths, time] complex, the batch dimension optional.
    tau_s : [batch, num_rx, num_tx, paths], seconds; the batch dimension optional.
    path : of the file, NetCDF-4.
    carrier_hz, bandwidth_hz : what the file says of the responses.
    direction : "uplink" where the server is the one receiver and devices transmit; "downlink" for
        the reverse, whose responses are the same by reciprocity.

    Raises
    ------
    UserError : the shapes are others.
    """
    a, tau_s = np.asarray(a), np.asarray(tau_s)
    if a.ndim == 6:
        a, tau_s = a[None], tau_s[None]
    if direction == "downlink":
        a, tau_s = a.transpose(0, 3, 4, 1, 2, 5, 6), tau_s.swapaxes(1, 2)
    if a.ndim != 7 or tau_s.ndim != 4 or a.shape[1] != 1 or a.shape[4] != 1:
        raise UserError(
            f"impulse responses {a.shape} with delays {tau_s.shape}, {direction}: [batch, 1 "
            "server, antennas, devices, 1, paths, time] and [batch, 1, devices, paths] would do"
        )
    times = a.shape[6]
    response = a[:, 0, :, :, 0].transpose(0, 4, 2, 1, 3)  # batch, time, device, antenna, path
    response = response.reshape(-1, *response.shape[2:])
    delays = {"tau_s": (("round", "device", "path"), tau_s[:, 0].repeat(times, 0))}
    write(path, carrier_hz, bandwidth_hz, response, "a", "path", delays)


def _get_frequencies(settings: Trace.Settings, file: Responses, budget: LinkBudget) -> Tensor:
    """Return [S, F]; for frequency responses they must be those of the file."""
    groups = settings.subcarrier_groups
    if file.delay_s is not None:
        return group_frequencies(budget.bandwidth_hz, groups or 1)
    known = file.response.shape[3]
    if groups not in (None, known):
        raise UserError(
            f"channel.subcarrier_groups: {groups}, but '{settings.file}' has frequency responses "
            f"of {known} groups; leave it out"
        )
    wanted = budget.bandwidth_hz.double()
    if known > 1 and bool(((wanted - file.bandwidth_hz).abs() > 1e-3 * file.bandwidth_hz).any()):
        raise UserError(
            f"channel.bandwidth_hz: '{settings.file}' has frequency responses over "
            f"{file.bandwidth_hz:g} Hz; that bandwidth would do"
        )
    return group_frequencies(wanted, known)
