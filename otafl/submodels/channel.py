"""Largest models for the participants with the best channels, or with a sufficient SNR."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.core.settings import Decibels
from otafl.core.units import db_to_linear
from otafl.submodels.base import SubmodelAssignment, SubmodelSetup, Weights, compute_share_bounds


class ChannelLevels(SubmodelAssignment):
    """Capacity levels by the channel of a round.

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
