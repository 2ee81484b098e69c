"""The record of a run at its evaluation rounds.

The recorder evaluates the views, reads totals and clock, and stops trials that reached their target
or diverged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from otafl.algorithms.base import Views
from otafl.core.contracts import Tensors
from otafl.core.stateful import Stateful
from otafl.devices.hardware import CAUSES
from otafl.engine.engine import Engine
from otafl.evaluation.evaluation import Evaluation
from otafl.results.dataset import Record
from otafl.results.variables import (
    LARGEST_OF_SERVERS,
    ROUNDS,
    SERVER,
    SUMS,
    TRIALS,
    get_variable,
    is_reached,
)
from otafl.scenario.notes import KINDS, find_power_constraint

_ENDS = ("end_round", "stop_round", "diverged_round")


def build_tested_views(engine: Engine) -> tuple[Tensors, Views]:
    """Return the method's views for the test, and the devices' tensors that they are made of.

    A method that treats devices separately gets only the tensors that differ; any other gets all.
    """
    algorithm = engine.parts.algorithm
    if not algorithm.is_per_device:
        blocks = engine.devices.get_all()
        return blocks, algorithm.build_views(engine.server, blocks)
    blocks, whose = engine.devices.get_distinct(engine.parts.model.num_params)
    views = algorithm.build_views(engine.server, blocks)
    if whose is not None:
        views |= {n: replace(v, param_index=whose) for n, v in views.items() if v.owner == "device"}
    return blocks, views


class Recorder(Stateful):
    """Recorder of S = points x trials."""

    state_attrs: ClassVar = ("rounds", "taken", "once")

    def __init__(self, engine: Engine, points: int, trials: int) -> None:
        self.engine = engine
        self.shape = (points, trials)
        self.rounds: list[int] = []
        self.taken: list[dict[str, np.ndarray]] = []
        size = points * trials
        self.once = {name: np.full(size, np.nan) for name in _ENDS}
        parts = engine.parts
        self._servers = parts.topology.rows.servers
        self._devices = self._servers * engine.num_devices
        for name, value in parts.algorithm.constants.items():
            self.once[name] = np.full(size, value)
        if parts.model.start_params:
            self.once["start_bits"] = np.full(size, float(parts.model.count_start_bits()))
        self._evaluation = Evaluation(
            parts.samples, parts.scenario.training, parts.scenario.loss, parts.model
        )
        kinds = map(find_power_constraint, parts.topology.rows.given[:: self._servers])
        numbers = [np.nan if kind is None else float(KINDS.index(kind)) for kind in kinds]
        self.once["power_constraint"] = np.array(numbers)
        once = self._evaluation.compute_constants() | parts.submodels.compute_constants()
        self.once |= self._sum_over_devices(merge_servers(once, self._servers))
        if (presence_s := parts.link.channel.presence_s) is not None:
            self.once["path_end_s"] = np.tile(presence_s[:, 1], (size, 1))

    @torch.inference_mode()
    def take_record(self, round: int, wall_time_s: float) -> None:
        """Take the record after `round` rounds; NaN for trials that had stopped before.

        Values are those of the rows, until they are converted to those of the trials.
        """
        engine = self.engine
        values = {name: value.cpu().numpy() for name, value in engine.means.take().items()}
        trained = values.pop("trained") > 0
        watts = engine.parts.link.budget.unit_power_w
        values["tx_power_w"] = values.pop("tx_power") * watts.cpu().numpy()[:, None]
        values["tx_energy_j"] = values.pop("radio_j")
        values |= self._read_clock()
        values["downlink_bits"] = engine.downlink_bits.copy()
        values |= engine.parts.submodels.take_metrics()
        values["wall_time_s"] = np.full(engine.num_trials, wall_time_s)
        running = engine.running.copy()
        blocks, views = build_tested_views(engine)
        if running.any():
            values |= self._evaluation.take(views, round, running)
        for name, found in engine.parts.link.transport.compute_metrics().items():
            values[name] = found.cpu().numpy()
        values |= engine.parts.topology.compute_metrics(engine.server, engine.parts.algorithm)
        for name, found in engine.parts.algorithm.compute_metrics(engine.server, blocks).items():
            values[name] = found.cpu().double().numpy() if round else np.full(len(running), np.nan)
        for value in values.values():
            value[~running] = np.nan
        losses = np.where(trained, values["train_loss"], 0.0), values.get("test_loss", 0.0)
        finite = np.isfinite(losses[0]) & np.isfinite(losses[1])
        values = merge_servers(values, self._servers)
        by_server = (one.reshape(-1, self._servers) for one in (running, finite, engine.ended))
        runs, sound, over = by_server
        self._stop(round, values, np.all(runs, 1), np.all(sound, 1), np.any(over, 1))
        self.rounds.append(round)
        self.taken.append(self._sum_over_devices(values))

    def _sum_over_devices(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return values [S, ...], for a large population without those of single devices.

        Variables that add up are replaced by their sums over devices.
        """
        if self._devices <= self.engine.parts.scenario.output.each_device_up_to:
            return values
        own = {name for name in values if "device" in get_variable(name).dims}
        sums = {name: values[name].sum(1) for name in own if name in SUMS}
        return {name: value for name, value in values.items() if name not in own} | sums

    def _read_clock(self) -> dict[str, np.ndarray]:
        """Return the clock's values: devices, joules and updates."""
        engine, clock = self.engine, self.engine.parts.clock
        spent = clock.compute_spent_j()
        started, lost = clock.count_updates()
        values = {
            "sim_time_s": clock.get_time_s(),
            "compute_energy_j": spent[..., CAUSES.index("compute")],
            "device_energy_j": spent,
            "present": clock.count_present(),
            "updates_started": started,
            "updates_lost": lost,
        }
        if not engine.parts.hardware.is_on_mains:
            values["charge_j"] = clock.compute_charge_j()
        return values | {name: count.copy() for name, count in engine.counts.items()}

    def _stop(
        self,
        round: int,
        values: dict[str, np.ndarray],
        running: np.ndarray,
        finite: np.ndarray,
        ended: np.ndarray,
    ) -> None:
        """Stop trials [S] that diverged, reached their target, or have an ended server."""
        engine = self.engine
        diverged = running & (round > 0) & ~finite
        reached = np.zeros_like(running)
        targets = engine.parts.scenario.training.stop_at
        if targets:
            met = [is_reached(name, values[name], target) for name, target in targets.items()]
            reached = running & np.all(met, axis=0) & ~diverged
        ended = running & ended
        self.once["end_round"][ended] = round
        self.once["diverged_round"][diverged] = round
        self.once["stop_round"][reached] = round
        for trial in np.nonzero(diverged | reached | ended)[0]:
            for server in range(self._servers):
                engine.stop(int(trial) * self._servers + server)

    def state_dict(self) -> dict[str, Any]:
        """Return also the state of the engine."""
        return {**super().state_dict(), "engine": self.engine.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.engine.load_state_dict(state["engine"])

    def record(self) -> Record:
        """Return all records so far, with the variables of `variables.VARIABLES`."""
        names = self.taken[0].keys()

        def split(values: np.ndarray) -> np.ndarray:
            return values.reshape(*self.shape, *values.shape[1:])

        variables = {
            name: np.moveaxis(np.stack([split(taken[name]) for taken in self.taken]), 0, 2)
            for name in names
        }
        variables |= {name: split(values) for name, values in self.once.items()}
        timeline = self.engine.parts.clock.build_timeline() or {}
        variables |= {
            f"timeline_{name}": split(
                merge_events(column, self._servers, self.engine.num_devices, name)
            )
            for name, column in timeline.items()
        }
        servers = () if self._servers == 1 else (self._servers,)
        sent = self.engine.link
        examples = {name: one.numpy() for saved in sent for name, one in saved.items()}
        link = {}
        for name, like in examples.items():
            # NaN (or 0, for flags) for rounds without it
            missing = np.full_like(like, np.nan if like.dtype.kind in "fc" else 0)
            rounds = [saved[name].numpy() if name in saved else missing for saved in sent]
            shape = (*self.shape, *servers, *like.shape[1:])
            link[name] = np.moveaxis(np.stack([one.reshape(shape) for one in rounds]), 0, 2)
        return Record(self.rounds, variables, link or None)


def merge_servers(values: Mapping[str, np.ndarray], num_servers: int) -> dict[str, np.ndarray]:
    """Return the values [S, ...] of S trials from those of their S C servers, [S C, ...].

    Devices are concatenated, [S, C K, ...]. Variables without a device dimension are averaged over
    the servers that have them, or take the largest value for `variables.LARGEST_OF_SERVERS`.
    `server_<name>` [S, C] has the value of each server.
    """
    if num_servers == 1:
        return dict(values)
    out = {}
    for name, value in values.items():
        apart = value.reshape(-1, num_servers, *value.shape[1:])
        dims, worst = get_variable(name).dims, name in LARGEST_OF_SERVERS
        if "device" in dims and value.ndim > 1:
            out[name] = apart.reshape(len(apart), -1, *value.shape[2:])
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of values that no server has
            out[name] = (np.nanmax if worst else np.nanmean)(apart, 1)
        if dims in (ROUNDS, TRIALS) and name != "wall_time_s":
            out[SERVER + name] = apart
    return out


def merge_events(table: np.ndarray, num_servers: int, num_devices: int, name: str) -> np.ndarray:
    """Return a column of the timelines [S C, events] as one of S trials, [S, C events].

    Devices are numbered consecutively from server to server.
    """
    apart = table.reshape(-1, num_servers, table.shape[1])
    if name == "device":
        apart = apart + num_devices * np.arange(num_servers)[:, None]
    return apart.reshape(len(apart), -1)
