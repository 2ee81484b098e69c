"""Capacity levels by the channel of a round."""

from __future__ import annotations

import functools
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.core.settings import Decibels
from otafl.core.units import db_to_linear
from otafl.submodels.base import (
    SECTION,
    SubmodelAssignment,
    SubmodelSetup,
    Weights,
    compute_share_bounds,
)


class ChannelLevels(SubmodelAssignment):
    """Largest models for the participants with the best channels, or with a sufficient SNR.

    Examples
    --------
    `docs/heterogeneous.md` has a scenario with `capacity_levels: channel`.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["channel"] = "channel"
        shares: Weights = None
        """share of a round's participants on each level, as weights; equal shares if not given"""
        min_snr_db: tuple[Decibels, ...] | None = None
        """least estimated SNR at full power in dB of each level except the smallest, from the
        largest model, instead of shares; not used if not given"""

        def count_values(self, levels: int) -> dict[str, int]:
            return {"shares": levels, "min_snr_db": levels - 1}

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        self._bounds = torch.from_numpy(compute_share_bounds(settings.shares, len(setup.submodels)))
        self._least = None
        if settings.min_snr_db is not None:
            self._least = db_to_linear(torch.tensor(settings.min_snr_db))

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        snr = self.setup.link.estimate_snr(state, round).flatten()[cohort.flat_index]
        if self._least is not None:
            return (snr[:, None] < self._least.to(snr)).sum(1)
        order = (-snr).argsort(stable=True)
        order = order[cohort.trial[order].argsort(stable=True)]  # by trial, the largest SNR first
        rows = cohort.rows_per_trial
        first = rows.cumsum(0) - rows
        place = torch.empty_like(snr)
        place[order] = torch.arange(cohort.num_rows, device=snr.device).to(snr)
        at = (place - first[cohort.trial] + 0.5) / rows[cohort.trial]
        return torch.searchsorted(self._bounds.to(at), at, right=True)


WORD = 32.0
"""Bits of a parameter."""


class DeadlineLevels(SubmodelAssignment):
    """Largest model that a device can train and send within a deadline.

    A device sends 32 bits a parameter at its estimated rate in the round, and participants share
    the band in turns. It trains the smallest model if no model is fast enough.

    Notes
    -----
    Level l with P_l parameters and C_l operations takes, on a device of f operations a second, with
    the rate r of its share of the band,

    .. math::

        C_l / f + 32 P_l / r

    seconds. The device trains the first level that takes at most the deadline.

    Examples
    --------
    `docs/devices.md` has a scenario with `capacity_levels: deadline`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            f"{SECTION}.seconds": 1.0,
        }

        name: Literal["deadline"] = "deadline"
        seconds: float = Field(gt=0)
        """seconds for local work and upload together"""

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        streams = setup.link.streams
        new = functools.partial(torch.tensor, dtype=streams.dtype, device=streams.device)
        self._bits = new([WORD * size.num_params for size in setup.submodels])
        self._speed = new(setup.hardware.flops_per_s.ravel())

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        link = self.setup.link
        snr = link.estimate_snr(state, round).flatten()[cohort.flat_index]
        band = link.budget.bandwidth_hz[cohort.trial] / cohort.rows_per_trial[cohort.trial]
        rate = (band * torch.log2(1.0 + snr)).clamp_min(1e-30)
        load = self.setup.load.select_devices(cohort.flat_index.cpu().numpy())
        flops = np.stack([size.flops_fn(load) for size in self.setup.submodels], 1)
        work = torch.from_numpy(flops).to(self._speed) / self._speed[cohort.flat_index, None]
        seconds = work + self._bits / rate[:, None]
        late = (seconds > self.settings.seconds).long()
        return late.cumprod(1).sum(1).clamp_max(len(self._bits) - 1)  # the first in time
