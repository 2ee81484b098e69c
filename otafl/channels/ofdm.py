"""OFDM grid of the frequency-selective channels: sub-carrier groups and coherence blocks.

The band is split into groups of neighbouring sub-carriers, and the response of a group is that at
its centre.

A channel is a function draw(index [R], time_s [R, U]) -> [R, U, K, A, F]. Devices that do not move
get a new draw for each index; the channel of moving devices is a function of time. So any block of
any round is available without earlier ones.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import FADING, ROUNDS_PER_BLOCK, RoundBlocks, build_block_state
from otafl.channels.jakes import count_correlation_rounds
from otafl.core.contracts import ChannelState, Paths
from otafl.core.rng import Purpose, Streams, declare_purpose
from otafl.core.settings import declare_stackable

PHASE = declare_purpose("fading_phase", __name__)
"""Phases of the paths of moving devices, constant during a run."""

BLOCKS_PER_ROUND = 1 << 20
"""Block b of round t has the index t * BLOCKS_PER_ROUND + b."""

NUMBERS_AT_ONCE = 1 << 22
"""Largest number of real numbers in a temporary tensor of a draw."""


class OfdmSettings(FadingSettings):
    """Common keys of the sections of frequency-selective channels."""

    subcarrier_groups: int = Field(8, ge=1)
    """number of sub-carrier groups in the band, F; each is flat, with the response at its centre"""


def declare_delay_spread() -> float:
    """Declare the delay spread of a profile of TR 38.901 7.7, the same for all devices."""
    return declare_stackable(
        100e-9,
        ge=0,
        description="RMS delay spread in seconds, by which the profile's delays are multiplied; TR "
        "38.901 Table 7.7.3-1: 10 ns very short, 100 ns nominal, 1000 ns very long",
    )


class Pairs:
    """Random numbers of (trial, device) pairs, without repetitions of equal trials.

    Trials of a stack with the same root seed, trial number and relevant settings have the same
    channel. Of S trials, U are drawn, of K devices each.

    Parameters
    ----------
    streams : Streams
        Random streams of the S trials.
    devices : int
        Number of devices, K.
    *settings : Tensor [S]
        Relevant settings of the trials.
    """

    def __init__(self, streams: Streams, devices: int, *settings: Tensor) -> None:
        matters = (setting.tolist() for setting in settings)
        keys = list(zip(streams.draw_seeds(FADING, 0), *matters, strict=True))
        first: dict[tuple[float, ...], int] = {}
        rows: list[int] = []
        for row, key in enumerate(keys):
            if key not in first:
                first[key] = len(rows)
                rows.append(row)
        device = streams.device
        self.count = len(rows)
        self.devices = devices
        self.streams = streams
        self.rows = torch.tensor(rows, device=device)
        self._place = torch.tensor([first[key] for key in keys], device=device)
        self._trial = self.rows.repeat_interleave(devices)
        self._device = torch.arange(devices, device=device).repeat(self.count)

    def draw_uniform(self, purpose: Purpose, index: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Draw [R, U, K, *shape] uniform in (0, 1) at the indices [R] int64."""
        draws = self.streams.draw_device_uniform_rounds(
            purpose, index, self._trial, self._device, shape
        )
        return draws.view(len(index), self.count, self.devices, *shape)

    def draw_static_uniform(self, purpose: Purpose, shape: tuple[int, ...]) -> Tensor:
        """Draw [U, K, *shape] uniform in (0, 1), constant during a run."""
        zero = torch.zeros(1, dtype=torch.int64, device=self.streams.device)
        return self.draw_uniform(purpose, zero, shape)[0]

    def expand_to_trials(self, values: Tensor, dim: int = 0) -> Tensor:
        """Expand values [.., U, ..] to all trials, [.., S, ..]."""
        if self.count == len(self._place):
            return values
        return values.index_select(dim, self._place)


def group_frequencies(bandwidth_hz: Tensor, groups: int) -> Tensor:
    """Return the centres of F equal groups of sub-carriers, relative to the carrier.

    Parameters
    ----------
    bandwidth_hz : Tensor [U]
        Bandwidth.
    groups : int
        Number of groups, F.

    Returns
    -------
    Tensor, float64 [U, F]
        Frequencies in Hz.
    """
    step = torch.arange(groups, dtype=torch.float64, device=bandwidth_hz.device)
    return (step - (groups - 1) / 2.0) * (bandwidth_hz.double()[:, None] / groups)


def rotations(cycles: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exp(j 2 pi cycles) in the complex type of the real `dtype`.

    Whole cycles are removed in the type of `cycles`.
    """
    angle = ((cycles - cycles.floor()) * (2.0 * math.pi)).to(dtype)
    return torch.complex(angle.cos(), angle.sin())


def delay_rotations(delay_s: Tensor, frequency_hz: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute exp(-j 2 pi f tau) [..., L, F] of delays [..., L] and frequencies [..., F]."""
    return rotations(-delay_s[..., None] * frequency_hz[..., None, :], dtype)


def frequency_response(taps: Tensor, rotation: Tensor) -> Tensor:
    r"""Compute the frequency response of paths.

    Paths are added one after the other, so that a device's sum does not depend on the shape.

    Parameters
    ----------
    taps : Tensor, complex [..., L]
        Amplitudes a_l of the paths.
    rotation : Tensor, complex [..., L, F]
        Rotations of `delay_rotations`, broadcast with `taps`.

    Returns
    -------
    Tensor, complex [..., F]
        The response at the frequencies.

    Notes
    -----
    .. math::

        h(f) = \sum_l a_l e^{-j 2 \pi f \tau_l}
    """
    h = taps[..., 0, None] * rotation[..., 0, :]
    for path in range(1, taps.shape[-1]):
        h = h + taps[..., path, None] * rotation[..., path, :]
    return h


class OfdmChannel(Channel):
    """Frequency-selective channel of paths; h [S, K, A, B, F] is complex."""

    def build_states(self, pairs: Pairs, rotation: Tensor, delay_s: Tensor, numbers: int) -> None:
        """Prepare the states of the channel's rounds.

        Parameters
        ----------
        pairs : Pairs
            Its U x K pairs.
        rotation : Tensor, complex [U, K or 1, 1, L, F]
            Phasors of the paths' delays at the groups.
        delay_s : Tensor, float64 [U, K or 1, L]
            Delays of the paths.
        numbers : int
            Real numbers in the largest temporary tensor of a draw for one index.
        """
        settings: OfdmSettings = self.settings
        self.correlation_rounds = count_correlation_rounds(settings)
        self._pairs, self._rotation, self._delay_s = pairs, rotation, delay_s
        bandwidth = self.budget.bandwidth_hz[pairs.rows].double()
        self._block_s = (settings.block_symbols or 0) / bandwidth  # one symbol a second and hertz
        self._at_once = max(1, NUMBERS_AT_ONCE // max(1, numbers))
        # long-term averages over correlated fading use rounds far apart, and waste most of a block
        most = self._at_once if settings.speed_kmh is None else self._at_once // 8
        length = max(1, min(ROUNDS_PER_BLOCK, most))
        self._rounds = RoundBlocks(
            self._draw_first_blocks,
            length,
            self.correlation_rounds,
            grows=length == ROUNDS_PER_BLOCK,
        )

    @abstractmethod
    def draw_taps(self, index: Tensor, time_s: Tensor) -> Tensor:
        """Draw the amplitudes of the paths.

        Parameters
        ----------
        index : Tensor, int64 [R]
            Indices of the random numbers, one for each block of a round.
        time_s : Tensor, float64 [R, U]
            Times of the blocks.

        Returns
        -------
        Tensor, complex [R, U, K, A, L]
            Amplitudes.
        """

    def compute_time_s(self, round: Tensor) -> Tensor:
        """Compute the times [R, 1 or U] at the beginning of rounds [R], float64."""
        return round.double()[:, None] * self.settings.round_interval_s

    def get_gain(self, round: int) -> Tensor:
        """Return the large-scale gains [S, K] of a round, by default the budget's."""
        return self.budget.gain

    def get_state(self, round: int) -> ChannelState:
        h = self._pairs.expand_to_trials(self._rounds[round])[:, :, :, None]
        return self._build_state(round, h, functools.partial(self._draw_blocks, round))

    def get_large_scale_state(self, round: int) -> ChannelState:
        settings, gain = self.settings, self.get_gain(round)
        shape = (*gain.shape, settings.antennas, 1, settings.subcarrier_groups)
        h = torch.ones(shape, dtype=self.streams.dtype.to_complex(), device=gain.device)
        return self._build_state(round, h, lambda blocks: h.expand(-1, -1, -1, blocks, -1))

    def _build_state(self, round: int, h: Tensor, later: Callable[[int], Tensor]) -> ChannelState:
        paths = functools.partial(self._draw_paths, round)
        return build_block_state(h, self.get_gain(round), self.settings.block_symbols, later, paths)

    def _draw_first_blocks(self, first: int, rounds: int) -> Tensor:
        """Draw the first blocks of rounds, [rounds, U, K, A, F]."""
        round = torch.arange(first, first + rounds, device=self._pairs.rows.device)
        return self._draw_responses(round, torch.zeros_like(round))

    def _draw_blocks(self, round: int, blocks: int) -> Tensor:
        """Draw the blocks of a round, [S, K, A, blocks, F]."""
        block = torch.arange(1, blocks, device=self._pairs.rows.device)
        parts = [self._rounds[round][None]]
        for part in block.split(self._at_once):
            parts.append(self._draw_responses(torch.full_like(part, round), part))
        return self._pairs.expand_to_trials(torch.cat(parts).movedim(0, 3))

    def _draw_paths(self, round: int, blocks: int) -> Paths:
        """Draw the impulse responses of a round's first blocks."""
        block = torch.arange(blocks, device=self._pairs.rows.device)
        parts = [
            self._draw_taps_of_blocks(torch.full_like(part, round), part)
            for part in block.split(self._at_once)
        ]
        a = self._pairs.expand_to_trials(torch.cat(parts).movedim(0, 3))
        return Paths(a, self._pairs.expand_to_trials(self._delay_s)[:, :, None])

    def _draw_responses(self, round: Tensor, block: Tensor) -> Tensor:
        """Draw the blocks [R] of the rounds [R], [R, U, K, A, F]."""
        return frequency_response(self._draw_taps_of_blocks(round, block), self._rotation)

    def _draw_taps_of_blocks(self, round: Tensor, block: Tensor) -> Tensor:
        """Draw the amplitudes of the paths in the blocks [R] of the rounds [R]."""
        time_s = self.compute_time_s(round) + block[:, None] * self._block_s
        return self.draw_taps(round * BLOCKS_PER_ROUND + block, time_s)
