"""Selections: which of the available devices take part in a round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Payload
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
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
        keys = draw_random_key(self.setup.streams, round, available.shape[1])
        return select_lowest(keys, available, wanted)[0]


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
    `devices: {count: 20, participants: 5, selection: update_norm}`

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


class BestChannel(Selection):
    """Devices with the largest estimated channel gains (opportunistic scheduling).

    The gain includes path loss. Of K devices with independent Rayleigh fading and one mean gain,
    the best has H_K = 1 + 1/2 + ... + 1/K times the mean.

    References
    ----------
    Knopp, Humblet 1995, "Information Capacity and Power Control in Single-Cell Multiuser
        Communications".

    Examples
    --------
    `studies/analog_vs_digital/analog_vs_digital.yaml` uses it.
    """

    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["best_channel"] = "best_channel"

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return select_lowest(-to_host(self.setup.estimate_gains(state, round)), available, wanted)[
            0
        ]


class Threshold(Selection):
    """Devices whose estimated SNR is above a threshold, uniformly chosen if they are too many.

    Devices below the threshold do not train in the round. Of the others `devices.participants`, if
    it is given, take part at most. Under Rayleigh fading of mean SNR s a device takes part with
    probability exp(-threshold / s). A round without a device above the threshold changes nothing.

    Examples
    --------
    `docs/devices.md` has a scenario with `selection: threshold`.
    """

    is_narrowing: ClassVar[bool] = True
    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["threshold"] = "threshold"
        min_snr_db: Decibels = declare_stackable(10.0)
        """least estimated SNR at full power, budget times channel gain, in dB"""

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._least = db_to_linear(setup.hyper["min_snr_db"][:, None])

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        snr = self.setup.estimate_snr(state, round)
        candidates = available & (snr >= self._least).cpu().numpy()
        if np.min(wanted) >= available.shape[1]:
            return candidates
        return select_lowest(
            draw_random_key(self.setup.streams, round, available.shape[1]), candidates, wanted
        )[0]


LEAST = 1e-200
"""Smallest throughput, of a device that was not served for a very long time."""


class ProportionalFair(Selection):
    r"""Devices with the largest rates relative to their average throughput (proportional fairness).

    Proportional fair scheduling, with the average throughput [S, K] in bits a symbol as state.

    Notes
    -----
    R_k is the rate of device k, and T_k its average throughput over t_c rounds, with R_k = 0 in the
    second equation if it is not served:

    .. math::

        R_k(t) = \log_2(1 + P_k |h_k|^2)

    .. math::

        T_k(t + 1) = (1 - 1/t_c) T_k(t) + R_k(t) / t_c

    Devices with the largest R_k / T_k are served. T_k starts at the device's fair share of its rate
    at mean gain.

    References
    ----------
    Viswanath, Tse, Laroia 2002, "Opportunistic Beamforming Using Dumb Antennas".

    Examples
    --------
    `docs/devices.md` has a scenario with `selection: proportional_fair`.
    """

    state_attrs: ClassVar = ("_throughput",)
    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["proportional_fair"] = "proportional_fair"
        window: float = declare_stackable(100.0, ge=1)
        """t_c, number of rounds over which a device's rate is averaged"""

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._budget = to_host(setup.budget.budget)
        self._share = 1.0 / to_host(setup.hyper["window"])[:, None]
        self._throughput: np.ndarray | None = None

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        if self._throughput is None:
            at_mean = np.log2(1.0 + self._budget * to_host(state.gain))
            share = np.minimum(1.0, np.broadcast_to(wanted, len(available)) / available.shape[1])
            self._throughput = at_mean * share[:, None]
        rate = np.log2(1.0 + self._budget * to_host(self.setup.estimate_gains(state, round)))
        chosen, _ = select_lowest(-rate / self._throughput.clip(LEAST), available, wanted)
        self._throughput += self._share * (rate * chosen - self._throughput)
        return chosen
