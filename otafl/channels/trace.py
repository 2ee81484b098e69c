"""Measured or simulated channels from a file.

A trace is a NumPy file: an array (.npy), which is h, or arrays by their names (.npz):

    either        h              (round, device[, antenna[, group]]) complex: frequency responses at
                                 the centres of equal groups of sub-carriers
    or            a              (round, device, antenna, path) complex: impulse responses,
                                 amplitudes at the carrier
                  tau_s          (round, device, path) or (device, path): their delays in seconds
    optional      bandwidth_hz   band that h covers, by default the run's own
                  gain           (round, device) or (device): linear large-scale power gains; h or a
                                 then has a mean power of one. Without it, a device's gain is the
                                 mean power of its responses over the file, by which they are
                                 divided
                  position_m     (round, device, 3) or (device, 3), with base_m (3): metres
                  x_m, y_m, coverage_db (y, x), roof_m (y, x), attribution: map of the place

A run's devices are the file's first ones, or random ones in each trial (`places`). A run that is
longer than the file starts it again. A device whose responses are zero has no path and is silent.
Impulse responses are evaluated on the run's own bandwidth. The file is kept in memory.
`export_trace` and `export_impulse_responses` write such files, and scripts/ray_trace.py writes
those of ray-traced places, some of which are included (`scene`).
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

from otafl.channels.base import Channel, ChannelSettings, Positions
from otafl.channels.fading import build_block_state
from otafl.channels.ofdm import delay_rotations, frequency_response, group_frequencies
from otafl.channels.trace_files import Responses, read
from otafl.core.arrays import to_numbers
from otafl.core.contracts import ChannelState, LinkBudget, Paths
from otafl.core.errors import UserError
from otafl.core.rng import declare_purpose

START = declare_purpose("trace_start", __name__)
PLACES = declare_purpose("trace_places", __name__)

SCENES = Path(__file__).parent / "scenes"
"""Folder of the ray-traced places."""

KEPT = 1 << 22
"""Largest number of channel gains that are kept for later rounds."""


class Trace(Channel):
    """Channel from a file; h [S, K, A, B, F] is complex.

    E|h|^2 = 1 over the file's rounds, antennas and groups.
    """

    class Settings(ChannelSettings):
        example: ClassVar = {"channel.scene": "munich"}

        name: Literal["trace"] = "trace"
        path: str | None = Field(None, min_length=1)
        """NumPy file, .npy or .npz"""
        scene: Literal["etoile", "florence", "munich"] | None = None
        """ray-traced place, instead of path: 96 pedestrians around a base station with 8 antennas
        above the roofs at 3.5 GHz, who move one metre in each of 12 rounds; some have no path
        (map data: OpenStreetMap contributors, ODbL)"""
        start: Literal["zero", "per_trial"] = "per_trial"
        """round of the file with which a trial starts: zero, the first, or per_trial, a random one.
        After its last round the file starts again, and before its first, which a delayed
        estimate may need, is its last"""
        places: Literal["first", "per_trial"] = "first"
        """devices of the file that take part: first, the file's first ones, or per_trial, random
        ones in each trial"""
        antennas: int | None = Field(None, ge=1)
        """number of antennas of the server, the file's first ones; all by default"""
        gains: Literal["relative", "absolute"] = "relative"
        """scale of the file's gains: relative, over their mean, so that snr_db is the mean SNR; or
        absolute path gains, with budgets of tx_power_dbm over thermal noise"""
        subcarrier_groups: int | None = Field(None, ge=1)
        """sub-carrier groups in bandwidth_hz at which impulse responses are evaluated, 1 by
        default; frequency responses have their own"""
        block_symbols: int | None = Field(None, ge=1)
        """channel uses of a coherence block, with consecutive rounds of the file in the blocks of a
        payload; if not given, the channel is constant over a payload"""

        def find_conflicts(self) -> Iterator[str]:
            yield from super().find_conflicts()
            if (self.path is None) == (self.scene is None):
                given = "neither" if self.path is None else "both"
                yield f"expected path, a file, or scene, a ray-traced place, got {given}; give one"
            given = next(
                (key for key in ("snr_db", "path_loss_db") if getattr(self, key) is not None), ""
            )
            if self.gains == "absolute" and given:
                yield (
                    f"gains: 'absolute' uses the path loss of the file, got {given} too; leave "
                    f"{given} out, or set gains: relative"
                )

        def list_notes(self, scenario: Any) -> Iterator[str]:
            try:
                rounds = len(read(self.file).response)
            except UserError:  # raised when the channel is built
                return
            if rounds < scenario.training.rounds:
                yield (
                    f"{self.file_entry} has {rounds} rounds, fewer than training.rounds "
                    f"({scenario.training.rounds}), so it starts again after its last round"
                )

        @property
        def file(self) -> str:
            """Path of the file."""
            return self.path or str(SCENES / f"{self.scene}.npz")

        @property
        def file_entry(self) -> str:
            """Key that chooses the file, and its value."""
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
                f"{settings.file_entry} has {known} devices and the scenario {devices}; set "
                f"devices.count to at most {known}"
            )
        if (settings.antennas or 1) > antennas:
            raise UserError(
                f"channel.antennas: got {settings.antennas}, but {settings.file_entry} has "
                f"{antennas}; use at most {antennas}"
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
        self._rounds = rounds
        self._chosen = torch.arange(devices, device=place).expand(streams.num_trials, -1)
        if settings.places == "per_trial":
            self._chosen = streams.draw_uniform(PLACES, 0, (known,)).argsort(1)[:, :devices]
        self._gain = self._compute_gains(picked).to(streams.dtype)
        self._kept: dict[int, Tensor] = {}
        self._start = torch.zeros(streams.num_trials, dtype=torch.int64, device=place)
        if settings.start == "per_trial":
            self._start = (streams.draw_uniform(START, 0, ()) * rounds).long()

    def get_state(self, round: int) -> ChannelState:
        """Return the channel of round (start + round) mod R of the file."""
        number = round % self._rounds
        h = self._kept.get(number)
        if h is None:
            h = self._read_rounds(self._start + number)
            if (len(self._kept) + 1) * h.numel() <= KEPT:
                self._kept[number] = h
        trial = torch.arange(len(self._start), device=self._start.device)
        gain = self._gain[self._get_file_round(round), trial] * self.budget.gain
        paths = None if self._delay is None else functools.partial(self._read_paths, round)
        later = functools.partial(self._read_blocks, round)
        block_symbols = self.settings.block_symbols
        return build_block_state(h[:, :, :, None], gain, block_symbols, later, paths)

    def get_positions(self, round: int, trial: int = 0) -> Positions | None:
        first = int(self._get_file_round(round)[trial])
        found = self._file.get_positions(first, self._chosen[trial].cpu().numpy())
        if found is None or found.ground is None:
            return found
        level = found.ground.coverage_db - 10.0 * math.log10(float(self._unit[trial]))
        return replace(found, ground=replace(found.ground, coverage_db=level))

    def _get_file_round(self, round: int) -> Tensor:
        """Return the round of the file for each trial, [S]."""
        return (self._start + round % self._rounds) % self._rounds

    def _compute_gains(self, picked: int) -> Tensor:
        """Compute the large-scale gains [R, S, K], float64, of the file's first devices."""
        settings, file = self.settings, self._file
        given = (
            self._take_out_gain() if file.gain is None else torch.as_tensor(file.gain[:, :picked])
        )
        whole = given.to(self.streams.device, torch.float64).expand(self._rounds, -1)
        gain = whole[:, self._chosen]
        mean = gain.mean((0, 2))
        if settings.gains == "absolute":
            mean = torch.ones_like(mean)
        elif settings.places == "first":
            mean = whole.mean().expand_as(mean)  # bit-equal to that of a single trial
        if not bool(mean.gt(0).all()):
            raise UserError(f"{settings.file_entry}: none of the {self.devices} devices has a path")
        self._unit = mean
        return gain / mean[:, None]

    def _read_blocks(self, round: int, blocks: int) -> Tensor:
        """Return h [S, K, A, blocks, F] of this round of the file and the following ones."""
        first = self._start + round % self._rounds
        return torch.stack([self._read_rounds(first + block) for block in range(blocks)], 3)

    def _read_paths(self, round: int, blocks: int) -> Paths:
        """Return the impulse responses of this round of the file and the following ones."""
        assert self._delay is not None
        first = self._start + round % self._rounds
        place = (first[:, None] + torch.arange(blocks, device=first.device)) % self._rounds
        place, chosen = place[:, None], self._chosen[:, :, None]  # [S, K, B]
        return Paths(self._response[place, chosen].movedim(3, 2), self._delay[place, chosen])

    def _read_rounds(self, rounds: Tensor) -> Tensor:
        """Return h [S, K, A, F] of the file's rounds [S], modulo its length."""
        place = rounds[:, None] % self._rounds
        response = self._response[place, self._chosen]
        if self._delay is None:
            return response
        delay = self._delay[place, self._chosen]
        rotation = delay_rotations(delay, self._frequency[:, None], response.real.dtype)
        return frequency_response(response, rotation[:, :, None])

    def _take_out_gain(self) -> Tensor:
        """Divide the responses by their mean power over the file, and return it, [1, K].

        The mean power of impulse responses is that of their paths, as if groups were spread over a
        wide band.
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
    """Write the states of a channel as a trace.

    The file has the first coherence block of each round, and the large-scale gains.

    Parameters
    ----------
    channel : Channel
        The channel, such as of `otafl.channels.build`.
    rounds : sequence of int
        Rounds of the channel, in the order of the file.
    path : str or Path
        File to write, which ends in .npz.
    carrier_hz, bandwidth_hz : float
        Carrier frequency and bandwidth of the responses.
    trial : int
        Trial of the channel's stack.
    """
    states = [channel.get_state(round) for round in rounds]
    h = torch.stack([state.h[trial, :, :, 0] for state in states]).cpu().numpy()
    gain = torch.stack([state.gain[trial] for state in states]).cpu().numpy()
    np.savez_compressed(path, h=h, gain=gain, carrier_hz=carrier_hz, bandwidth_hz=bandwidth_hz)


def export_impulse_responses(
    a: Any,
    tau_s: Any,
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    direction: str = "uplink",
) -> None:
    """Write Sionna's impulse responses, of a channel model or its ray tracer, as a trace.

    Their path loss becomes the gain. Rounds are the batch, and time within it. A device has one
    antenna.

    Parameters
    ----------
    a : array, complex [batch, num_rx, rx_ant, num_tx, tx_ant, paths, time]
        Amplitudes of the paths; the batch dimension is optional.
    tau_s : array, float [batch, num_rx, num_tx, paths]
        Delays in seconds; the batch dimension is optional.
    path : str or Path
        File to write, which ends in .npz.
    carrier_hz, bandwidth_hz : float
        Carrier frequency and bandwidth of the responses.
    direction : {"uplink", "downlink"}
        "uplink" if the server is the only receiver and devices transmit; "downlink" for the
        reverse, whose responses are equal by reciprocity.

    Raises
    ------
    UserError
        If the shapes are different.
    """
    a = to_numbers(a, "the amplitudes a", "complex numbers", "c")
    tau_s = to_numbers(tau_s, "the delays tau_s", "real numbers", "iuf")
    if a.ndim == 6:
        a, tau_s = a[None], tau_s[None]
    if direction == "downlink":
        a, tau_s = a.transpose(0, 3, 4, 1, 2, 5, 6), tau_s.swapaxes(1, 2)
    if a.ndim != 7 or tau_s.ndim != 4 or a.shape[1] != 1 or a.shape[4] != 1:
        raise UserError(
            f"impulse responses ({direction}): expected the shapes [batch, 1 server, antennas, "
            "devices, 1, paths, time] and, of delays, [batch, 1, devices, paths]; got "
            f"{a.shape} and {tau_s.shape}"
        )
    times = a.shape[6]
    response = a[:, 0, :, :, 0].transpose(0, 4, 2, 1, 3)  # batch, time, device, antenna, path
    response = response.reshape(-1, *response.shape[2:])
    tau_s = tau_s[:, 0].repeat(times, 0)
    np.savez_compressed(
        path, a=response, tau_s=tau_s, carrier_hz=carrier_hz, bandwidth_hz=bandwidth_hz
    )


def _get_frequencies(settings: Trace.Settings, file: Responses, budget: LinkBudget) -> Tensor:
    """Return the frequencies [S, F] of the groups; a file of frequency responses must have them."""
    groups = settings.subcarrier_groups
    if file.delay_s is not None:
        return group_frequencies(budget.bandwidth_hz, groups or 1)
    known = file.response.shape[3]
    if groups not in (None, known):
        raise UserError(
            f"channel.subcarrier_groups: got {groups}, but '{settings.file}' has frequency "
            f"responses of {known} groups; leave it out"
        )
    wanted, stated = budget.bandwidth_hz.double(), file.bandwidth_hz
    if known > 1 and stated and bool(((wanted - stated).abs() > 1e-3 * stated).any()):
        raise UserError(
            f"channel.bandwidth_hz: '{settings.file}' has frequency responses over "
            f"{stated:g} Hz; set bandwidth_hz to that"
        )
    return group_frequencies(wanted, known)
