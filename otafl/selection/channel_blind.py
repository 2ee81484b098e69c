"""Selections without knowledge of the channels: at random, in turn, and by the updates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Payload
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_purpose
from otafl.core.settings import declare_stackable
from otafl.selection.base import (
    Devices,
    NumWanted,
    Selection,
    SelectionSetup,
    draw_random_key,
    select_lowest,
    to_host,
)


class UniformSelection(Selection):
    """Uniform selection without replacement (partial participation).

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks
        from Decentralized Data".

    Examples
    --------
    `studies/analog_vs_digital/analog_vs_digital.yaml` uses it.
    """

    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["uniform"] = "uniform"

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return select_lowest(self.get_keys(round, available.shape[1]), available, wanted)[0]

    def get_keys(self, round: int, devices: int) -> np.ndarray:
        return draw_random_key(self.setup.streams, round, devices)


class Poisson(Selection):
    """Independent selection of each device with the same probability (Poisson sampling).

    The number of participants varies, and a round may have none. `devices.participants`, if it is
    given, is the largest number. This sampling amplifies differential privacy (section `privacy`).

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang 2016, "Deep Learning with Differential
        Privacy".
    McMahan, Ramage, Talwar, Zhang 2018, "Learning Differentially Private Recurrent Language
        Models".

    Examples
    --------
    `docs/privacy.md` has a scenario with `selection: poisson`.
    """

    is_narrowing: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["poisson"] = "poisson"
        probability: float = declare_stackable(0.5, gt=0, le=1)
        """probability with which a device takes part in a round"""

        @property
        def sampling_probability(self) -> float:
            return self.probability

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._probability = to_host(setup.hyper["probability"])[:, None]

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        key = draw_random_key(self.setup.streams, round, available.shape[1])
        drawn = available & (key < self._probability)
        return select_lowest(key, drawn, wanted)[0]


class RoundRobin(Selection):
    """Devices in turn, those with the longest wait first (round robin).

    A device that is busy in its turn is first once it is available.

    Round-robin scheduling, with the position [S, K] of each device in the queue as state.

    A served device moves to the end of the queue.

    References
    ----------
    Yang, Liu, Quek, Poor 2020, "Scheduling Policies for Federated Learning in Wireless Networks".

    Examples
    --------
    `devices.selection: round_robin` in a scenario with `devices.participants`.
    """

    state_attrs: ClassVar = ("_place", "_end")
    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["round_robin"] = "round_robin"

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        trials, devices = setup.budget.budget.shape
        self._place = np.tile(np.arange(devices), (trials, 1))
        self._end = devices

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        chosen, order = select_lowest(self._place, available, wanted)
        behind = self._end + np.arange(order.shape[1])
        here = np.take_along_axis(self._place, order, 1)
        served = np.take_along_axis(chosen, order, 1)
        np.put_along_axis(self._place, order, np.where(served, behind, here), 1)
        self._end += order.shape[1]
        return chosen


SENDERS = declare_purpose("senders", __name__)


def draw_subset(cohort: Cohort, wanted: int, round: int, streams: Streams) -> Tensor:
    """Draw transmitters of each trial, every set with equal probability.

    Parameters
    ----------
    cohort : Cohort
        Participants, N rows.
    wanted : int
        Number of transmitters of each trial; all if there are fewer rows.
    round : int
        Index of the round.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    Tensor, bool [N]
        Transmitters.
    """
    key = streams.draw_device_uniform(SENDERS, round, cohort.trial, cohort.device, (1,)).squeeze(1)
    order = key.argsort()
    order = order[cohort.trial[order].argsort(stable=True)]  # by trial, then by key
    first = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
    place = torch.arange(cohort.num_rows, device=key.device) - first[cohort.trial]
    return torch.zeros_like(cohort.transmit_mask).scatter_(0, order, place < wanted)


class UpdateNorm(Selection):
    """Participants with the largest updates as transmitters, after all available have trained.

    All devices report the norm of their update, a real number each and so a symbol of side
    information. Those with the largest norms send it. The update of another device is dropped
    before its codec. A chosen device that misses the slot is late like any other.

    Examples
    --------
    `docs/privacy.md` has a scenario with `selection: update_norm`.

    References
    ----------
    Amiri, Gunduz, Kulkarni, Poor 2021, "Convergence of Update Aware Device Scheduling for Federated
        Learning at the Wireless Edge" (BN2).
    """

    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["update_norm"] = "update_norm"

        @property
        def assumes_increments(self) -> str:
            """The reason why devices must send increments."""
            return "chooses the devices with the largest updates, by the norm of their payload"

        def check(self, scenario: Any) -> Iterable[Problem]:
            devices, key = scenario.devices, "devices.selection"
            wrong = f"cannot be combined with {key}: 'update_norm', which"
            if devices.senders is not None:
                text = f"{wrong} chooses the transmitters itself; leave it out"
                yield make_problem(text, "devices.senders", key)
            wrong += " drops updates that are not sent in their own round;"
            if devices.protocol.goes_on:
                text = f"'{devices.protocol.name}' {wrong} use protocol: rounds"
                yield make_problem(text, "devices.protocol", key)
            if devices.late == "next":
                yield make_problem(f"'next' {wrong} use late: drop", "devices.late", key)

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return available

    def select_transmitters(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor:
        cells = cohort.num_trials * cohort.num_devices
        norms = cohort.weight.new_full((cells,), -torch.inf, dtype=torch.float64)
        norms[cohort.flat_index] = torch.where(
            cohort.transmit_mask, compute_squared_norms(payload, cohort), -torch.inf
        )
        order = norms.view(cohort.num_trials, -1).argsort(stable=True, dim=1, descending=True)
        best = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :wanted], True)
        return best.flatten()[cohort.flat_index] & cohort.transmit_mask

    def count_overhead_symbols(self, available: Devices | None, cohort: Cohort) -> Tensor | None:
        return cohort.rows_per_trial


def compute_squared_norms(payload: Payload, cohort: Cohort) -> Tensor:
    """Compute the squared norms of the updates, without coordinates that a row does not know.

    Parameters
    ----------
    payload : tuple of Group
        Updates of all rows. Groups on the ideal route do not count.
    cohort : Cohort
        Participants, N rows.

    Returns
    -------
    Tensor, float64 [N]
        Squared norms.
    """
    total = torch.zeros_like(cohort.weight, dtype=torch.float64)
    for group in payload:
        if group.route == "ideal":
            continue
        for block in group.masked_tensors.values():
            rows = block.flatten(1)
            norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()
            total = (
                total + norm
                if group.row_index is None
                else total.index_add(0, group.row_index, norm)
            )
    return total
