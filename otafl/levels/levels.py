"""Which of a method's model sizes each device trains in a round: its level, 0 the largest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Level
from otafl.core.errors import UserError
from otafl.devices.hardware import Hardware
from otafl.levels.config import (
    ChannelLevelsConfig,
    ComputeLevelsConfig,
    DeadlineLevelsConfig,
    DynamicLevelsConfig,
    FixedLevelsConfig,
    MemoryLevelsConfig,
)
from otafl.selection.choosing import SelectionSetup

WORD = 32.0
"""Bits of a parameter."""
COPIES = 3
"""Of the parameters in training: themselves, gradients, momentum."""


@dataclass(frozen=True)
class LevelSetup:
    """What every assignment is built from. sizes: the method's levels. hardware: [S, K]. samples:
    of a device's local work in a round; batch: of a minibatch. link: as selections have it."""

    sizes: tuple[Level, ...]
    hardware: Hardware
    samples: int
    batch: int
    link: SelectionSetup

    def bounds(self, shares: Sequence[float] | None) -> np.ndarray:
        """[L] upper ends of the levels' shares of (0, 1)."""
        return _bounds(shares, len(self.sizes))

    def table(self, level: np.ndarray) -> Tensor:
        """[S * K] int64 on the torch device, of [S, K]."""
        return torch.from_numpy(np.ascontiguousarray(level, np.int64).ravel()).to(
            self.link.streams.device
        )


class Levels(Protocol):
    """Made as `implementation(config, setup)`."""

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        """[N] int64: the level of each row in a round with this channel."""


class FixedLevels:
    def __init__(self, config: FixedLevelsConfig, setup: LevelSetup) -> None:
        trials, devices = setup.hardware.flops_per_s.shape
        place = np.tile(np.arange(devices), (trials, 1))
        if config.assignment == "random":
            generators = setup.link.streams.generators("levels")
            place = np.stack([generator.permutation(devices) for generator in generators])
        self._table = setup.table(_by_place(place, devices, setup.bounds(config.shares)))

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        return self._table[cohort.cell]


class DynamicLevels:
    def __init__(self, config: DynamicLevelsConfig, setup: LevelSetup) -> None:
        self._streams = setup.link.streams
        self._bounds = torch.from_numpy(setup.bounds(config.shares)[:-1])

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        at = self._streams.device_uniform("levels", round, cohort.trial, cohort.device, (1,))
        return torch.searchsorted(self._bounds.to(at), at.flatten().contiguous(), right=True)


class ComputeLevels:
    def __init__(self, config: ComputeLevelsConfig, setup: LevelSetup) -> None:
        speed = setup.hardware.flops_per_s
        place = (-speed).argsort(1, kind="stable").argsort(1, kind="stable")
        self._table = setup.table(_by_place(place, speed.shape[1], setup.bounds(config.shares)))

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        return self._table[cohort.cell]


class MemoryLevels:
    """Raises UserError where a device or a class of them cannot hold the smallest model."""

    def __init__(self, config: MemoryLevelsConfig, setup: LevelSetup) -> None:
        bytes_of = torch.finfo(setup.link.streams.dtype).bits / 8
        need = np.array(
            [
                (COPIES * size.parameters + setup.batch * size.kept_reals) * bytes_of / 2**20
                for size in setup.sizes
            ]
        )
        what, memory = "devices.compute.memory_mb: a device has", setup.hardware.memory_mb
        least = memory.min()
        if config.memory_mb is not None:
            what, classes = "devices.levels.memory_mb: got", np.array(config.memory_mb)
            least = classes.min()
            trials, devices = memory.shape
            bounds = _bounds(config.shares, len(classes))
            place = np.tile(np.arange(devices), (trials, 1))
            memory = classes[_by_place(place, devices, bounds)]
        if least < need[-1]:
            raise UserError(
                f"{what} {least:g}, but training the smallest model takes {need[-1]:.3g} MiB; more "
                "memory, a smaller level or a smaller batch would do"
            )
        self._table = setup.table((need <= memory[..., None]).argmax(-1))

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        return self._table[cohort.cell]


class ChannelLevels:
    def __init__(self, config: ChannelLevelsConfig, setup: LevelSetup) -> None:
        self._setup = setup
        self._bounds = torch.from_numpy(setup.bounds(config.shares)[:-1])
        self._least = None
        if config.min_snr_db is not None:
            self._least = 10.0 ** (torch.tensor(config.min_snr_db) / 10.0)

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        snr = self._setup.link.snr(state, round).flatten()[cohort.cell]
        if self._least is not None:
            return (snr[:, None] < self._least.to(snr)).sum(1)
        order = (-snr).argsort(stable=True)
        order = order[cohort.trial[order].argsort(stable=True)]  # by trial, the best heard first
        rows = cohort.rows_of
        first = rows.cumsum(0) - rows
        place = torch.empty_like(snr)
        place[order] = torch.arange(cohort.size, device=snr.device).to(snr)
        at = (place - first[cohort.trial] + 0.5) / rows[cohort.trial]
        return torch.searchsorted(self._bounds.to(at), at, right=True)


class DeadlineLevels:
    def __init__(self, config: DeadlineLevelsConfig, setup: LevelSetup) -> None:
        self._setup, self._seconds = setup, config.seconds
        streams = setup.link.streams
        new = functools.partial(torch.tensor, dtype=streams.dtype, device=streams.device)
        self._flops = new([size.flops(setup.samples) for size in setup.sizes])
        self._bits = new([WORD * size.parameters for size in setup.sizes])
        self._speed = new(setup.hardware.flops_per_s.ravel())

    def of(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        link = self._setup.link
        snr = link.snr(state, round).flatten()[cohort.cell]
        band = link.budget.bandwidth_hz[cohort.trial] / cohort.rows_of[cohort.trial]
        rate = (band * torch.log2(1.0 + snr)).clamp_min(1e-30)
        seconds = self._flops / self._speed[cohort.cell, None] + self._bits / rate[:, None]
        late = (seconds > self._seconds).long()
        return late.cumprod(1).sum(1).clamp_max(len(self._flops) - 1)  # the first in time


def _bounds(shares: Sequence[float] | None, count: int) -> np.ndarray:
    """[count] upper ends of the shares of (0, 1); None for equal ones."""
    weights = np.ones(count) if shares is None else np.asarray(shares, float)
    return np.cumsum(weights / weights.sum())


def _by_place(place: np.ndarray, devices: int, bounds: np.ndarray) -> np.ndarray:
    """The level of the device at each place of so many."""
    return np.searchsorted(bounds[:-1], (place + 0.5) / devices, side="right")

