"""Model sizes of the participants in a round, and their costs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel
from otafl.core.contracts import ChannelState, Cohort, Submodel, Workload
from otafl.core.stateful import Stateful
from otafl.submodels.base import SubmodelAssignment


class SubmodelWorkload(Stateful):
    """Operations of each device's round and, for a method with several sizes, of its levels.

    workload: local work of all devices, [S, K].
    """

    state_attrs: ClassVar = ("_since", "_total", "_samples", "_rounds")

    def __init__(
        self,
        algorithm: Algorithm,
        assigned: SubmodelAssignment | None,
        channel: Channel,
        workload: Workload,
    ) -> None:
        self._assigned, self._channel = assigned, channel
        self.submodels: tuple[Submodel, ...] = algorithm.levels
        # Devices that hold as many samples do as much: a table of [levels, different numbers].
        samples, self._column_index = np.unique(workload.num_samples.ravel(), return_inverse=True)
        each = replace(workload, num_samples=samples)
        of_levels = [level.flops_fn for level in self.submodels] or [algorithm.count_flops]
        self._flops = np.stack([of(each) for of in of_levels])
        self._trained = each.num_steps * each.effective_batch_size
        self._parameters = np.array([one.num_params for one in self.submodels], float)
        self._macs = np.array([one.macs for one in self.submodels], float)
        shape = (len(workload.num_samples), len(self.submodels))
        self._since, self._total, self._samples = (np.zeros(shape) for _ in range(3))
        self._rounds = 0

    @property
    def uses_channel(self) -> bool:
        """Whether levels may depend on the channel."""
        return self._assigned is not None

    def assign_levels(self, cohort: Cohort, t: int, channel: ChannelState | None) -> Cohort:
        """Return the cohort with the level of each row."""
        if self._assigned is None or not cohort.num_rows:
            return cohort
        state = self._channel.get_state(t) if channel is None else channel
        return replace(cohort, capacity_level=self._assigned.assign_levels(cohort, t, state))

    def count_flops(self, cohort: Cohort) -> np.ndarray:
        """Return the operations of each row's local work, [N]."""
        level = 0 if self._assigned is None else cohort.capacity_level.cpu().numpy()
        flops: np.ndarray = self._flops[level, self._find_columns(cohort)]
        return flops

    def record_start(self, cohort: Cohort) -> None:
        """Count the rows at the beginning of their work."""
        self._rounds += 1
        if self.submodels:
            rows = cohort.host_trial_device[0], cohort.capacity_level.cpu().numpy()
            np.add.at(self._since, rows, 1.0)
            np.add.at(self._samples, rows, self._trained[self._find_columns(cohort)])

    def compute_constants(self) -> dict[str, np.ndarray]:
        """Return the values for the whole run, [S, L]."""
        if not self.submodels:
            return {}
        rows = (len(self._since), 1)
        return {
            "level_parameters": np.tile(self._parameters, rows),
            "level_macs": np.tile(self._macs, rows),
        }

    def take_metrics(self) -> dict[str, np.ndarray]:
        """Return the mean participants of each level [S, L] over the rounds since the last call.

        Also returned are the parameters exchanged and multiplications of training so far, [S].
        """
        if not self.submodels:
            return {}
        self._total += self._since
        mean = self._since / self._rounds if self._rounds else np.full_like(self._since, np.nan)
        self._since, self._rounds = np.zeros_like(self._since), 0
        return {
            "level_participants": mean,
            "exchanged_parameters": 2.0 * self._total @ self._parameters,
            "training_macs": self._samples @ self._macs,
        }

    def _find_columns(self, cohort: Cohort) -> np.ndarray:
        """Return the column of each row in the table, [N]."""
        holds: np.ndarray = self._column_index[cohort.host_flat_index]
        return holds
