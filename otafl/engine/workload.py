"""Costs of rounds: local work and model sizes of the devices, means and totals of the link."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel
from otafl.clock import Clock
from otafl.core.contracts import (
    ChannelState,
    Cohort,
    LinkBudget,
    LinkReport,
    Submodel,
    TransmitLimits,
    Workload,
)
from otafl.core.stateful import Stateful
from otafl.cpu_frequency.base import CpuFrequency, Task
from otafl.devices.faults import Faults
from otafl.devices.hardware import Hardware, compute_energy_j
from otafl.devices.slowness import Jitter
from otafl.downlink.base import BroadcastDelivery
from otafl.submodels.assignments import SubmodelAssignment


@dataclass(frozen=True)
class ComputeLoad:
    """Local work of the rows of a cohort [N].

    Seconds until each has the model, seconds and watts of its local work, the joules of both, and
    the share of its power budget that it uses (None: all).
    """

    downlink_s: np.ndarray
    compute_s: np.ndarray
    compute_w: np.ndarray
    energy_j: np.ndarray
    power_share: np.ndarray | None

    def take(self, keep: np.ndarray) -> ComputeLoad:
        """Return the rows [N] bool to keep."""
        parts = {name: value[keep] for name, value in vars(self).items() if value is not None}
        return replace(self, **parts)


@dataclass
class WorkloadPlanner(Stateful):
    """Local work of devices, and the resulting bounds on their transmissions.

    deadline_s, round_budget_j: [S], inf without a bound.
    """

    state_attrs: ClassVar = ("_power", "_spent_j")

    hardware: Hardware
    cpu_frequency: CpuFrequency
    jitter: Jitter | None
    faults: Faults | None
    clock: Clock
    budget: LinkBudget
    deadline_s: np.ndarray
    round_budget_j: np.ndarray

    def __post_init__(self) -> None:
        """Start without an update: [S, K] share of the power budget, and joules of its work."""
        self._power: np.ndarray | None = None
        self._spent_j = np.zeros(self.hardware.flops_per_s.shape)
        self._is_bounded = bool(np.isfinite(self.round_budget_j).any())
        self._unit_j = self.budget.unit_energy_j.double().cpu().numpy()[:, None]
        bandwidth_hz = self.budget.bandwidth_hz.double().cpu().numpy()[:, None]
        self._per_symbol_j = self.hardware.circuit_w / bandwidth_hz

    def plan_load(
        self,
        cohort: Cohort,
        flops: np.ndarray,
        arrival: BroadcastDelivery,
        channel: ChannelState,
        t: int,
    ) -> ComputeLoad:
        """Return the load of rows with this number of operations [N]."""
        at = trial, device = cohort.host_trial_device
        own = self.hardware
        down_s = arrival.row_seconds
        if down_s is None:
            sent_s, shape = np.asarray(arrival.seconds), (cohort.num_trials,)
            down_s = (sent_s if sent_s.shape == shape else np.broadcast_to(sent_s, shape))[trial]
        deadline_s = self.deadline_s[trial]
        task = Task(trial, device, flops, down_s, deadline_s, arrival.num_coordinates, channel, t)
        pace = self.cpu_frequency.choose_speed(task)
        cycles = flops * (own.frequency_hz[at] / own.flops_per_s[at])
        joules = compute_energy_j(cycles, pace.frequency_hz, own.kappa[at])
        seconds = cycles / pace.frequency_hz
        if self.jitter is not None:
            seconds = seconds * self.jitter.draw_factor(cohort.trial, cohort.device, t)
        slowdown = None if self.faults is None else self.faults.draw_slowdown(trial, device, t)
        if slowdown is not None:
            seconds = seconds * slowdown
        watts = np.divide(joules, seconds, out=np.zeros_like(seconds), where=seconds > 0)
        return ComputeLoad(down_s, seconds, watts, joules + own.receive_w[at] * down_s, pace.power)

    def find_within_budget(self, cohort: Cohort, load: ComputeLoad) -> np.ndarray | None:
        """Return the rows whose work is within a round's budget, [N] bool; None for no budget."""
        if not self._is_bounded:
            return None
        return load.energy_j <= self.round_budget_j[cohort.host_trial_device[0]]

    def start(self, cohort: Cohort, load: ComputeLoad) -> None:
        """Record the work that the rows begin."""
        if self._is_bounded:
            self._spent_j[cohort.host_trial_device] = load.energy_j
        if load.power_share is not None:
            if self._power is None:
                self._power = np.ones_like(self._spent_j)
            self._power[cohort.host_trial_device] = load.power_share

    def get_limits(self) -> TransmitLimits:
        """Return the bounds on the transmissions in the current slot."""
        left_j = None
        if not self.hardware.is_on_mains:
            left_j = self.clock.compute_charge_j()
        if self._is_bounded:
            own = np.maximum(0.0, self.round_budget_j[:, None] - self._spent_j)
            left_j = own if left_j is None else np.minimum(left_j, own)
        energy = per_symbol = None
        like = self.budget.budget
        if left_j is not None:
            drawn = self.hardware.efficiency / self._unit_j
            energy = torch.from_numpy(left_j * drawn).to(like)
            per_symbol = torch.from_numpy(self._per_symbol_j * drawn).to(like)
        power = None if self._power is None else torch.from_numpy(self._power).to(like)
        return TransmitLimits(power_share=power, energy_budget=energy, energy_per_symbol=per_symbol)


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


def read_costs(report: LinkReport) -> tuple[np.ndarray, ...]:
    """Copy participants and airtime [S], and joules and seconds on air [S, K], to the host.

    They are one transfer, because a host waits for its GPU in each.
    """
    columns = report.participants[:, None], report.airtime_s[:, None]
    costs = torch.cat([*columns, report.energy_j, report.on_air_s], 1).double().cpu().numpy()
    middle = 2 + report.energy_j.shape[1]
    return costs[:, 0], costs[:, 1], costs[:, 2:middle], costs[:, middle:]


class RoundMeans(Stateful):
    """Means over the rounds since the last record, and totals since the first.

    No data leave the torch device before `take`.
    """

    state_attrs: ClassVar = ("_trial", "_device", "_loss", "_trained", "_rounds")

    _PER_TRIAL: ClassVar = {  # name -> of the report
        "aggregation_nmse": "nmse",
        "participants": "participants",
        "uplink_symbols": "symbols",
        "uplink_bits": "bits",
        "side_symbols": "side_symbols",
        "airtime_s": "airtime_s",
    }
    _PER_DEVICE: ClassVar = {"tx_power": "power", "radio_j": "energy_j"}
    _TOTALS = ("uplink_symbols", "uplink_bits", "side_symbols", "airtime_s", "radio_j")

    def __init__(self, trials: int, devices: int, device: torch.device) -> None:
        new = functools.partial(torch.zeros, dtype=torch.float64, device=device)
        self._trial = new(len(self._PER_TRIAL), trials)
        self._device = new(len(self._PER_DEVICE), trials, devices)
        self._loss, self._trained = new(trials), new(trials)
        self._rounds = 0

    def add(self, report: LinkReport, cohort: Cohort, loss: Tensor) -> None:
        """Add a round: its delivery, and the loss [N] of the cohort that trained."""
        self._rounds += 1
        self._loss.index_add_(0, cohort.trial, loss.double())
        self._trained += cohort.rows_per_trial
        said = vars(report)
        self._trial += torch.stack([said[name] for name in self._PER_TRIAL.values()])
        self._device += torch.stack([said[name] for name in self._PER_DEVICE.values()])

    def take(self) -> dict[str, Tensor]:
        """Return means since the last call (NaN without a round) and totals.

        They are float64, [S] or [S, K].
        """
        rounds = float(self._rounds) if self._rounds else torch.nan
        out = {"train_loss": self._loss / self._trained, "trained": self._trained.clone()}
        for names, sums in ((self._PER_TRIAL, self._trial), (self._PER_DEVICE, self._device)):
            for row, name in enumerate(names):
                out[name] = sums[row].clone()
                if name not in self._TOTALS:
                    out[name] /= rounds
                    sums[row] = 0.0
        self._loss.zero_()
        self._trained.zero_()
        self._rounds = 0
        return out
