"""The model sizes of a stack's devices: who trains which in a round, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from otafl.core.contracts import ChannelState, Cohort, Level

if TYPE_CHECKING:
    from otafl.engine.assembly import Parts


class Sizes:
    """Of a method of one size, the operations of a device's round; of others, the levels' too."""

    def __init__(self, parts: Parts) -> None:
        training = parts.scenario.training
        self._parts = parts
        self._samples = training.batch_size * training.local_steps
        self.levels: tuple[Level, ...] = parts.algorithm.levels()
        self._flops = np.array([level.flops(self._samples) for level in self.levels])
        self._whole = parts.algorithm.flops(self._samples)
        shape = (len(parts.share), len(self.levels))
        self._since, self._total = np.zeros(shape), np.zeros(shape)
        self._rounds = 0

    def assign(self, cohort: Cohort, t: int, channel: ChannelState | None) -> Cohort:
        """The cohort with the level of each row."""
        parts = self._parts
        if parts.levels is None or not cohort.size:
            return cohort
        state = parts.link.channel.state(t) if channel is None else channel
        return replace(cohort, level=parts.levels.of(cohort, t, state))

    def flops(self, cohort: Cohort) -> np.ndarray:
        """[N] operations of each row's local work."""
        if not self.levels:
            return np.full(cohort.size, self._whole)
        flops: np.ndarray = self._flops[cohort.level.cpu().numpy()]
        return flops

    def count(self, cohort: Cohort) -> None:
        """The rows' work begins."""
        self._rounds += 1
        if self.levels:
            rows = cohort.trial.cpu().numpy(), cohort.level.cpu().numpy()
            np.add.at(self._since, rows, 1.0)

    def once(self) -> dict[str, np.ndarray]:
        """What holds for the whole run, [S, L]."""
        if not self.levels:
            return {}
        rows = len(self._since)
        return {
            "level_parameters": np.tile([float(one.parameters) for one in self.levels], (rows, 1)),
            "level_macs": np.tile([float(one.macs) for one in self.levels], (rows, 1)),
        }

    def take(self) -> dict[str, np.ndarray]:
        """Participants of each level [S, L], mean over the rounds since the last call; parameters
        exchanged and multiplications of training so far [S]."""
        if not self.levels:
            return {}
        self._total += self._since
        mean = self._since / self._rounds if self._rounds else np.full_like(self._since, np.nan)
        self._since, self._rounds = np.zeros_like(self._since), 0
        parameters = np.array([one.parameters for one in self.levels], float)
        macs = np.array([one.macs for one in self.levels], float)
        return {
            "level_participants": mean,
            "exchanged_parameters": 2.0 * self._total @ parameters,
            "training_macs": self._total @ macs * self._samples,
        }
