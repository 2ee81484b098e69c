"""Costs of a round's local work on the devices: seconds, watts and joules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from otafl.clock import Clock
from otafl.core.contracts import ChannelState, Cohort, LinkBudget, TransmitLimits
from otafl.core.stateful import Stateful
from otafl.cpu_frequency.base import CpuFrequency, Task
from otafl.devices.faults import Faults
from otafl.devices.hardware import Hardware, compute_energy_j
from otafl.devices.slowness import Jitter
from otafl.downlink.base import Delivery


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
    jitter: Jitter
    faults: Faults
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
        self, cohort: Cohort, flops: np.ndarray, arrival: Delivery, channel: ChannelState, t: int
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
        for factor in (
            self.jitter.draw_factor(cohort.trial, cohort.device, t),
            self.faults.draw_slowdown(trial, device, t),
        ):
            if factor is not None:
                seconds = seconds * factor
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
