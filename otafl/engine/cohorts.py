"""The cohort of a round: the participants, their weights and sizes, and the transmitters."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.engine.assembly import Parts
from otafl.selection.base import Selection, in_order
from otafl.selection.choosing import draw_subset


class Cohorts:
    """Cohorts of a stack of S trials over K devices.

    share: [S, K], the devices' numbers of samples, or ones for uniform weights. wanted: devices per
    round and trial. must_ask: whether devices are asked for their availability one after the other,
    instead of a choice among all available ones.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.share = parts.samples.share
        if parts.scenario.training.weights == "uniform":
            self.share = torch.ones_like(self.share)
        self._trials, self._population = self.share.shape
        self.wanted = parts.scenario.devices.participants or self._population
        asked = self.wanted < self._population and not parts.selection.is_narrowing
        ordered = type(parts.selection).keys is not Selection.keys
        self.must_ask = parts.clock.must_ask and asked and ordered
        self._everyone: Cohort | None = None

    @functools.cached_property
    def outline(self) -> ChannelState:
        """A channel of no particular device, for components that do not use it."""
        return self._parts.link.channel.outline(0)

    def drawn(
        self,
        available: np.ndarray | None,
        running: np.ndarray,
        version: Tensor | None,
        t: int,
        channel: ChannelState | None = None,
    ) -> Cohort:
        """Choose `devices.participants` available devices of each trial by `devices.selection`.

        Parameters
        ----------
        available : ndarray, bool [S, K], optional
            None for all devices, or if they are asked.
        running : ndarray, bool [S]
            Running trials.
        version : Tensor [S], optional
            Version of the broadcast model, if the method has one; otherwise it is the round.
        t : int
            The round.
        channel : ChannelState, optional
            Channel of the round; not needed by a selection that does not use it.
        """
        selection = self._parts.selection
        whole = self.wanted == self._population and not selection.is_narrowing
        everyone = available is None and whole
        if everyone and self._everyone is not None:
            self._everyone.version.fill_(t)
            return self._described(self._everyone, version, t, channel)
        free = available
        if free is None:
            free = np.ones((self._trials, self._population), bool)
        if self.must_ask and available is None:
            free = self._asked(running, t)
        elif not whole:
            state = channel
            if state is None:
                state = self.outline if selection.blind else self._parts.link.channel.state(t)
            free = selection.choose(free, self._vacancies(), t, state)
        cohort = self._of(free, t)
        if everyone:
            self._everyone = cohort
        return self._described(cohort, version, t, channel)

    def weighted(self, cohort: Cohort, t: int) -> Cohort:
        """Return the cohort with the weights that the method gives to its devices."""
        share = self._shares(cohort.trial, cohort.device)
        return self._by_method(replace(cohort, weight=share), t)

    def forget(self) -> None:
        """Draw the next cohort again, because a trial has stopped."""
        self._everyone = None

    def _vacancies(self) -> np.ndarray | int:
        """Return the number of devices to choose; [S] if those of earlier rounds still work."""
        if not self._parts.scenario.devices.protocol.goes_on:
            return self.wanted
        busy = self._parts.clock.at_work().sum(1)
        vacant: np.ndarray = np.maximum(0, self.wanted - busy)
        return vacant

    def _asked(self, running: np.ndarray, t: int) -> np.ndarray:
        """Return the first available devices in the selection's order, [S, K] bool."""
        chosen = np.zeros((self._trials, self._population), bool)
        keys = self._parts.selection.keys(t, self._population)
        assert keys is not None
        wanted = np.broadcast_to(self._vacancies(), self._trials)
        for trial in np.flatnonzero(running).tolist():
            order = in_order(keys[trial])
            there = self._parts.clock.select_first_available(trial, order, int(wanted[trial]))
            chosen[trial, there] = True
        return chosen

    def _of(self, chosen: np.ndarray, t: int) -> Cohort:
        trial, device = np.nonzero(chosen)
        to = self.share.device
        rows = torch.from_numpy(trial).to(to), torch.from_numpy(device).to(to)
        counts = tuple(chosen.sum(1).tolist())
        return Cohort.fresh(*rows, self._shares(*rows), counts, self._population, version=t)

    def _shares(self, trial: Tensor, device: Tensor) -> Tensor:
        """Return the devices' shares of their trials' weight, [N]."""
        return self.share[trial, device] / self.share.sum(1)[trial]

    def _described(
        self, cohort: Cohort, version: Tensor | None, t: int, channel: ChannelState | None
    ) -> Cohort:
        """Return the cohort with levels, the method's weights and versions, and transmitters."""
        cohort = self._parts.sizes.assign(cohort, t, channel)
        if version is not None:
            cohort = replace(cohort, version=version[cohort.trial])
        return self._who_sends(self._by_method(cohort, t), t)

    def _by_method(self, cohort: Cohort, t: int) -> Cohort:
        weight = self._parts.algorithm.row_weights(self._parts.context(cohort, t))
        return cohort if weight is cohort.weight else replace(cohort, weight=weight)

    def _who_sends(self, cohort: Cohort, t: int) -> Cohort:
        """Return the cohort with `sends` as `devices.senders` and the method say, where they do."""
        wanted = self._parts.scenario.devices.senders
        if wanted is not None and wanted < max(cohort.counts):
            some = draw_subset(cohort, wanted, t, self._parts.streams)
            cohort = replace(cohort, sends=some, all_transmit=False)
        sends = self._parts.algorithm.sends(self._parts.context(cohort, t))
        if sends is None:
            return cohort
        return replace(cohort, sends=sends & cohort.sends, all_transmit=False)
