"""Flat Rayleigh block fading, drawn by Sionna's RayleighBlockFading: h ~ CN(0, 1), constant over a
round's payload, independent over devices and rounds."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from scipy import special
from torch import Tensor

from otafl.channels.config import RayleighConfig
from otafl.channels.fading import ROUNDS_PER_BLOCK, RoundBlocks
from otafl.channels.sionna_rng import keep_global_state, sionna_stream
from otafl.contracts import ChannelState, LinkBudget
from otafl.rng import Streams

DEVICES_PER_DRAW = 32


class Rayleigh:
    """h: [S, K, 1, 1, 1] complex, E|h|^2 = 1. Devices are drawn 32 at a time, each batch of
    them from a stream of its own, so the first devices' fading does not depend on how many there
    are."""

    unit_mean_amplitude: ClassVar[float] = math.sqrt(math.pi) / 2.0

    def __init__(
        self, config: RayleighConfig, budget: LinkBudget, devices: int, streams: Streams
    ) -> None:
        with keep_global_state():
            from sionna.phy.channel import RayleighBlockFading

        self._sionna = RayleighBlockFading(
            num_rx=1,
            num_rx_ant=1,
            num_tx=DEVICES_PER_DRAW,
            num_tx_ant=1,
            precision="double" if streams.dtype == torch.float64 else "single",
            device=str(streams.device),
        )
        self._streams = streams
        self._devices = devices
        self._gain = budget.gain[:, None].expand(streams.size, devices)
        self._blocks = RoundBlocks(self._draw)

    def state(self, round: int) -> ChannelState:
        return ChannelState(h=self._blocks[round][..., None, None, None], gain=self._gain)

    def _draw(self, first: int, rounds: int) -> Tensor:
        """[rounds, S, K]."""
        batches = []
        for batch in range(-(-self._devices // DEVICES_PER_DRAW)):
            by_seed: dict[int, Tensor] = {}
            seeds = self._streams.seeds(f"fading/{batch}", first // ROUNDS_PER_BLOCK)
            for seed in seeds:
                if seed not in by_seed:
                    with sionna_stream(seed, self._streams.device):
                        taps, _ = self._sionna(batch_size=rounds, num_time_steps=1)
                    by_seed[seed] = taps.view(rounds, DEVICES_PER_DRAW)
            batches.append(torch.stack([by_seed[seed] for seed in seeds], 1))
        return torch.cat(batches, 2)[:, :, : self._devices]

    def mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        """E[1/g; g >= threshold] = E1(threshold / beta) / beta of the estimate's exponential gain
        g of mean beta = gain (1 + variance)."""
        beta = gain * (1.0 + error_variance)
        return float(special.exp1(threshold / beta)) / beta
