"""The cohort of a round: the participants, their weights and sizes, and the transmitters."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.engine.assembly import EngineParts
from otafl.selection.selections import draw_subset


class Cohorts:
    """Cohorts of a stack of S trials over K devices.

    sample_share: [S, K], the devices' numbers of samples, or ones for uniform weights.
    num_participants: devices per round and trial.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self.sample_share = parts.samples.sample_share
        if parts.scenario.training.weights == "uniform":
            self.sample_share = torch.ones_like(self.sample_share)
        self._num_trials, self._num_devices = self.sample_share.shape
        self.num_participants = parts.scenario.devices.participants or self._num_devices
        trial_share = self.sample_share.sum(1)
        self._normalised_share = (self.sample_share / trial_share[:, None]).view(-1)
        self._full_cohort: Cohort | None = None

    @functools.cached_property
    def placeholder_channel(self) -> ChannelState:
        """A channel of no particular device, for components that do not use it."""
        return self._parts.link.channel.get_large_scale_state(0)

    def draw(
        self,
        available: np.ndarray | None,
        version: Tensor | None,
        t: int,
        channel: ChannelState | None = None,
    ) -> Cohort:
        """Choose `devices.participants` available devices of each trial by `devices.selection`.

        Parameters
        ----------
        available : ndarray, bool [S, K], optional
            None for all devices.
        version : Tensor [S], optional
            Version of the broadcast model, if the method has one; otherwise it is the round.
        t : int
            The round.
        channel : ChannelState, optional
            Channel of the round; not needed by a selection that does not use it.
        """
        selection = self._parts.selection
        whole = self.num_participants == self._num_devices and not selection.is_narrowing
        has_all_devices = available is None and whole
        if has_all_devices and self._full_cohort is not None:
            self._full_cohort.version.fill_(t)
            return self._complete_cohort(self._full_cohort, version, t, channel)
        free = available
        if free is None:
            free = np.ones((self._num_trials, self._num_devices), bool)
        if not whole:
            state = channel
            if state is None:
                state = (
                    self.placeholder_channel
                    if selection.is_channel_blind
                    else self._parts.link.channel.get_state(t)
                )
            vacant: np.ndarray | int = self.num_participants  # [S] if earlier ones still work
            if self._parts.scenario.devices.protocol.goes_on:
                vacant = np.maximum(0, vacant - self._parts.clock.get_busy().sum(1))
            free = selection.select_devices(free, vacant, t, state)
        cohort = self._build_cohort(free, t)
        if has_all_devices:
            self._full_cohort = cohort
        return self._complete_cohort(cohort, version, t, channel)

    def reweight(self, cohort: Cohort, t: int) -> Cohort:
        """Return the cohort with the weights that the method gives to its devices."""
        share = self._normalised_share[cohort.flat_index]
        return self._apply_algorithm_weights(replace(cohort, weight=share), t)

    def forget(self) -> None:
        """Draw the next cohort again, because a trial has stopped."""
        self._full_cohort = None

    def _build_cohort(self, selected_mask: np.ndarray, t: int) -> Cohort:
        """Return the cohort of the selected devices [S, K]."""
        place = torch.from_numpy(np.flatnonzero(selected_mask)).to(self.sample_share.device)
        trial, device = place // self._num_devices, place % self._num_devices
        counts = tuple(selected_mask.sum(1).tolist())
        share = self._normalised_share[place]
        return Cohort.create(trial, device, share, counts, self._num_devices, version=t)

    def _complete_cohort(
        self, cohort: Cohort, version: Tensor | None, t: int, channel: ChannelState | None
    ) -> Cohort:
        """Return the cohort with levels, the method's weights and versions, and transmitters.

        The latter are those that `devices.senders` leaves.
        """
        cohort = self._parts.submodels.assign_levels(cohort, t, channel)
        if version is not None:
            cohort = replace(cohort, version=version[cohort.trial])
        cohort = self._apply_algorithm_weights(cohort, t)
        wanted = self._parts.scenario.devices.senders
        if wanted is None or wanted >= max(cohort.counts):
            return cohort
        some = draw_subset(cohort, wanted, t, self._parts.streams)
        return replace(cohort, transmit_mask=some, all_transmit=False)

    def _apply_algorithm_weights(self, cohort: Cohort, t: int) -> Cohort:
        weight = self._parts.algorithm.compute_weights(self._parts.make_context(cohort, t))
        return cohort if weight is cohort.weight else replace(cohort, weight=weight)
