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
from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import FADING, ROUNDS_PER_BLOCK, RoundBlocks, build_block_state
from otafl.core.contracts import ChannelState, Paths
from otafl.core.rng import Purpose, Streams, declare_purpose
from otafl.core.settings import declare_stackable

PHASE = declare_purpose("fading_phase", __name__)
"""Phases of the paths of moving devices, constant during a run."""

BLOCKS_PER_ROUND = 1 << 20
"""Block b of round t has the index t * BLOCKS_PER_ROUND + b."""

NUMBERS_AT_ONCE = 1 << 22
"""Largest number of real numbers in a temporary tensor of a draw."""

Draw = Callable[[Tensor, Tensor], Tensor]


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


class OfdmStates:
    """States of a frequency-selective channel's rounds.

    Parameters
    ----------
    channel : Channel
        The channel.
    pairs : Pairs
        Its U x K pairs.
    draw : callable
        Draws h [R, U, K, A, F].
    numbers : int
        Real numbers in the largest temporary tensor of `draw` for one index.
    taps : callable
        Draws the amplitudes [R, U, K, A, L] of the paths.
    delay_s : Tensor, float64 [U, K or 1, L]
        Delays of the paths.
    """

    def __init__(
        self,
        channel: Channel,
        pairs: Pairs,
        draw: Draw,
        numbers: int,
        taps: Draw,
        delay_s: Tensor,
    ) -> None:
        settings: OfdmSettings = channel.settings
        self._pairs = pairs
        self._draw, self._draw_taps, self._delay_s = draw, taps, delay_s
        self._block_symbols = settings.block_symbols
        self._round_s = settings.round_interval_s
        self._gain = channel.budget.gain
        self._shape = settings.antennas, 1, settings.subcarrier_groups
        self._dtype = channel.streams.dtype.to_complex()
        bandwidth = channel.budget.bandwidth_hz[pairs.rows].double()
        self._block_s = (settings.block_symbols or 0) / bandwidth  # one symbol a second and hertz
        self._at_once = max(1, NUMBERS_AT_ONCE // max(1, numbers))
        # long-term averages over correlated fading use rounds far apart, and waste most of a block
        most = self._at_once if settings.speed_kmh is None else self._at_once // 8
        length = max(1, min(ROUNDS_PER_BLOCK, most))
        self._rounds = RoundBlocks(
            self._draw_first_blocks,
            length,
            channel.correlation_rounds,
            grows=length == ROUNDS_PER_BLOCK,
        )

    def get_state(self, round: int, gain: Tensor | None = None) -> ChannelState:
        """Return the state of a round.

        `gain` [S, K] is the large-scale gain; by default it is that of the budget.
        """
        gain = self._gain if gain is None else gain
        h = self._pairs.expand_to_trials(self._rounds[round])[:, :, :, None]
        later = functools.partial(self._draw_blocks, round)
        paths = functools.partial(self._draw_paths, round)
        return build_block_state(h, gain, self._block_symbols, later, paths)

    def get_large_scale_state(self, round: int, gain: Tensor | None = None) -> ChannelState:
        """Return a state of a round without its fading: h is 1."""
        gain = self._gain if gain is None else gain
        h = torch.ones((*gain.shape, *self._shape), dtype=self._dtype, device=gain.device)
        paths = functools.partial(self._draw_paths, round)
        return build_block_state(
            h, gain, self._block_symbols, lambda blocks: h.expand(-1, -1, -1, blocks, -1), paths
        )

    def _draw_first_blocks(self, first: int, rounds: int) -> Tensor:
        """Draw the first blocks of rounds, [rounds, U, K, A, F]."""
        round = torch.arange(first, first + rounds, device=self._pairs.rows.device)
        return self._draw_blocks_of_rounds(self._draw, round, torch.zeros_like(round))

    def _draw_blocks(self, round: int, blocks: int) -> Tensor:
        """Draw the blocks of a round, [S, K, A, blocks, F]."""
        block = torch.arange(1, blocks, device=self._pairs.rows.device)
        parts = [self._rounds[round][None]]
        for part in block.split(self._at_once):
            parts.append(
                self._draw_blocks_of_rounds(self._draw, torch.full_like(part, round), part)
            )
        return self._pairs.expand_to_trials(torch.cat(parts).movedim(0, 3))

    def _draw_paths(self, round: int, blocks: int) -> Paths:
        """Draw the impulse responses of a round's first blocks."""
        block = torch.arange(blocks, device=self._pairs.rows.device)
        parts = [
            self._draw_blocks_of_rounds(self._draw_taps, torch.full_like(part, round), part)
            for part in block.split(self._at_once)
        ]
        a = self._pairs.expand_to_trials(torch.cat(parts).movedim(0, 3))
        return Paths(a, self._pairs.expand_to_trials(self._delay_s)[:, :, None])

    def _draw_blocks_of_rounds(self, draw: Draw, round: Tensor, block: Tensor) -> Tensor:
        """Draw the blocks [R] of the rounds [R], [R, U, K, A, ...]."""
        time = round.double()[:, None] * self._round_s + block[:, None] * self._block_s
        return draw(round * BLOCKS_PER_ROUND + block, time)
