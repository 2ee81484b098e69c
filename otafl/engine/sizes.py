"""Model sizes of the participants in a round, and their costs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel
from otafl.core.contracts import ChannelState, Cohort, Submodel, Workload
from otafl.core.stateful import Stateful
from otafl.levels.base import SubmodelAssignment


class Sizes(Stateful):
    """Operations of each device's round and, for a method with several sizes, of its levels.

    load: local work of all devices, [S, K].
    """

    state_attrs: ClassVar = ("_since", "_total", "_samples", "_rounds")

    def __init__(
        self,
        algorithm: Algorithm,
        assigned: SubmodelAssignment | None,
        channel: Channel,
        load: Workload,
    ) -> None:
        self._assigned, self._channel = assigned, channel
        self.levels: tuple[Submodel, ...] = algorithm.levels()
        # Devices that hold as many samples do as much: a table of [levels, different numbers].
        samples, self._holds = np.unique(load.samples.ravel(), return_inverse=True)
        each = replace(load, samples=samples)
        of_levels = [level.flops for level in self.levels] or [algorithm.flops]
        self._flops = np.stack([of(each) for of in of_levels])
        self._trained = each.steps * each.batch
        self._parameters = np.array([one.parameters for one in self.levels], float)
        self._macs = np.array([one.macs for one in self.levels], float)
        shape = (len(load.samples), len(self.levels))
        self._since, self._total, self._samples = (np.zeros(shape) for _ in range(3))
        self._rounds = 0

    @property
    def by_channel(self) -> bool:
        """Whether levels may depend on the channel."""
        return self._assigned is not None

    def assign(self, cohort: Cohort, t: int, channel: ChannelState | None) -> Cohort:
        """Return the cohort with the level of each row."""
        if self._assigned is None or not cohort.size:
            return cohort
        state = self._channel.state(t) if channel is None else channel
        return replace(cohort, level=self._assigned.of(cohort, t, state))

    def flops(self, cohort: Cohort) -> np.ndarray:
        """Return the operations of each row's local work, [N]."""
        level = 0 if self._assigned is None else cohort.level.cpu().numpy()
        flops: np.ndarray = self._flops[level, self._holds_of(cohort)]
        return flops

    def count(self, cohort: Cohort) -> None:
        """Count the rows at the beginning of their work."""
        self._rounds += 1
        if self.levels:
            rows = cohort.host_trial_device[0], cohort.level.cpu().numpy()
            np.add.at(self._since, rows, 1.0)
            np.add.at(self._samples, rows, self._trained[self._holds_of(cohort)])

    def once(self) -> dict[str, np.ndarray]:
        """Return the values for the whole run, [S, L]."""
        if not self.levels:
            return {}
        rows = (len(self._since), 1)
        return {
            "level_parameters": np.tile(self._parameters, rows),
            "level_macs": np.tile(self._macs, rows),
        }

    def take(self) -> dict[str, np.ndarray]:
        """Return the mean participants of each level [S, L] over the rounds since the last call.

        Also returned are the parameters exchanged and multiplications of training so far, [S].
        """
        if not self.levels:
            return {}
        self._total += self._since
        mean = self._since / self._rounds if self._rounds else np.full_like(self._since, np.nan)
        self._since, self._rounds = np.zeros_like(self._since), 0
        return {
            "level_participants": mean,
            "exchanged_parameters": 2.0 * self._total @ self._parameters,
            "training_macs": self._samples @ self._macs,
        }

    def _holds_of(self, cohort: Cohort) -> np.ndarray:
        """Return the column of each row in the table, [N]."""
        holds: np.ndarray = self._holds[cohort.host_flat_index]
        return holds
