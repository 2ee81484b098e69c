"""Set up an uplink of many Monte-Carlo trials, as a scenario's would be, and send known symbols
over it round after round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl import topology
from otafl.core.contracts import Cohort, Group, LinkReport
from otafl.core.rng import Streams, declare_family
from otafl.engine.assembly import select_torch_device
from otafl.engine.device_store import DeviceStore
from otafl.engine.payload_collector import encode
from otafl.scenario import load_scenario
from otafl.topology import Rows
from otafl.uplink import Uplink, build
from otafl.uplink.base import deliver

CONFORMANCE = declare_family("conformance", __name__)
"""The streams of the laws."""

POWERS = (0.3, 2.0)
"""Smallest and largest mean symbol power of devices that differ, spread geometrically."""


@dataclass(frozen=True)
class Bench:
    """Say how much is computed, and where. quick: a quarter of the sample, or less."""

    device: str = "cpu"
    quick: bool = False

    def scale_size(self, full: int) -> int:
        """Return the size of a sample that is so large in the whole suite."""
        return max(1, full // 4) if self.quick else full

    @property
    def torch_device(self) -> torch.device:
        """Return the torch device."""
        return select_torch_device(self.device)

    def build_rig(
        self,
        devices: int,
        trials: int,
        points: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        weights: Sequence[float] | None = None,
        senders: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float64,
        first: int = 0,
    ) -> Rig:
        """Make an uplink of one stack of trials of each of the points (sections of a scenario),
        numbered on from `first`; where trials have several servers, each is a trial here.

        senders: the n devices that send, ascending, else all. weights: [n], else equal ones.
        """
        settings = [points] if isinstance(points, Mapping) else list(points)
        base = {"name": "conformance", "devices": {"count": devices}}
        base["output"] = {"save_link": True}
        scenarios = [load_scenario(base | dict(one)) for one in settings]
        stacked = [scenario for scenario in scenarios for _ in range(trials)]
        rows = Rows.build(stacked, range(first, first + len(stacked)), self.torch_device, dtype)
        servers, streams = topology.build(rows), rows.streams
        link = build(
            rows.scenarios,
            devices,
            streams,
            reached=servers.get_uplink_channel,
            neighbours=servers.build_intercell,
        )
        sending = list(range(devices) if senders is None else senders)
        return Rig(link, streams, sending, _build_cohort(sending, devices, weights, streams))


@dataclass(frozen=True)
class Rig:
    """Send over an uplink of S trials, from n of the K devices that each has."""

    link: Uplink
    streams: Streams
    senders: list[int]
    cohort: Cohort

    @property
    def num_trials(self) -> int:
        """Return the number of trials, S."""
        return self.streams.num_trials

    @property
    def num_devices(self) -> int:
        """Return how many devices send, n."""
        return len(self.senders)

    @functools.cached_property
    def symbol_powers(self) -> Tensor:
        """Return mean symbol powers [n] that differ."""
        low, high = (torch.tensor(power).log10().item() for power in POWERS)
        return torch.logspace(low, high, self.num_devices).to(self.cohort.weight)

    def draw_symbols(self, reals: int, round: int, powers: Tensor | float | None = None) -> Tensor:
        """Draw normal symbols [S * n, P], independent over devices, whose mean power over the
        payload is `powers` ([n] or one; else those that differ) to the last bit or so."""
        draw = self.streams.draw_device_normal(
            CONFORMANCE, round, self.cohort.trial, self.cohort.device, (reals,)
        )
        level = self.symbol_powers if powers is None else torch.as_tensor(powers).to(draw)
        root = level.expand(self.num_devices).sqrt().repeat(self.num_trials)[:, None]
        return draw / draw.square().mean(1, keepdim=True).sqrt() * root

    def send(self, x: Tensor, round: int, weighting: str = "mean") -> tuple[Tensor, LinkReport]:
        """Return the estimate [S, P] from symbols [S * n, P], and the report."""
        group = Group({"x": x}, weighting="none" if weighting == "none" else "mean")
        codec, channel = self.link.codec, self.link.channel.get_state(round)
        memory = DeviceStore(self.num_trials, self.num_devices, x.device)
        payload = encode(codec, (group,), memory, self.cohort, round, self.streams)
        received, report = deliver(self.link.transport, payload, self.cohort, channel, round)
        return codec.decode(received).mean[0]["x"], report

    def record(self, rounds: int, reals: int, powers: Tensor | float | None = None) -> Record:
        """Record so many rounds, each with a new payload."""
        parts: dict[str, list[np.ndarray]] = {}
        for round in range(rounds):
            x = self.draw_symbols(reals, round, powers)
            estimate, report = self.send(x, round)
            gain = self.link.channel.get_state(round).gain[:, self.senders]
            for name, value in (self._record_round(x, estimate, report) | {"gain": gain}).items():
                parts.setdefault(name, []).append(value.cpu().numpy())
        return Record(reals=reals, **{name: np.stack(value) for name, value in parts.items()})

    def _record_round(self, x: Tensor, estimate: Tensor, report: LinkReport) -> dict[str, Tensor]:
        """Return what a record keeps of a round."""
        saved = {name.partition("/")[0]: value for name, value in report.saved_tensors.items()}
        own = self.senders
        one = {name: saved[name][:, 0, own] for name in ("h", "h_hat", "p", "c", "active", "m")}
        share = saved["weight"][:, own]
        weight = share * one["active"]
        rows = x.view(self.num_trials, self.num_devices, -1)
        total = weight.sum(1, keepdim=True).clamp_min(1e-30)
        target = torch.einsum("sk,skp->sp", weight / total, rows)
        gram = saved["gram"][:, 0, own][..., own]
        gain = one["h"] * one["p"] / saved["eta"][:, :1].sqrt()
        off = (gain * weight / total).real - share
        return one | {
            "eta": saved["eta"][:, 0],
            "noise": saved["noise"][:, 0],
            "error": (estimate - target).square().mean(1),
            "weight": share,
            "power": report.power[:, own],
            "budget": self.link.budget.budget[:, own],
            "nmse": report.nmse,
            "exact": torch.einsum("sk,skp->sp", share, rows).square().sum(1),
            "distortion": torch.einsum("sk,skj,sj->s", off, gram.real, off),
        }

    def draw_fading(self, rounds: int) -> np.ndarray:
        """Return the fading [R, S, K, A, B, F] of the rounds from 0 on."""
        states = [self.link.channel.get_state(round).h for round in range(rounds)]
        return torch.stack(states).cpu().numpy()


@dataclass(frozen=True)
class Record:
    """Hold what R rounds of S trials gave, of the K devices that send.

    h, h_hat, p, c, active, m, power, budget, weight: [R, S, K], as in `LinkReport.saved_tensors`
    and the report; gain: [R, S, K] the large-scale one; eta, noise: [R, S]. error: [R, S] mean
    squared error of a real about the mean over who was on air. nmse: [R, S] as reported. exact: [R,
    S] squared norm of the error-free mean, distortion: [R, S] that of what the estimate without
    noise is off, from the saved Gram matrices. reals: of a payload.
    """

    reals: int
    h: np.ndarray
    h_hat: np.ndarray
    p: np.ndarray
    c: np.ndarray
    active: np.ndarray
    m: np.ndarray
    eta: np.ndarray
    noise: np.ndarray
    error: np.ndarray
    weight: np.ndarray
    power: np.ndarray
    budget: np.ndarray
    gain: np.ndarray
    nmse: np.ndarray
    exact: np.ndarray
    distortion: np.ndarray

    def select_point(self, index: int, points: int) -> Record:
        """Return the record of the trials of one of so many points."""
        trials = self.eta.shape[1] // points
        part = slice(index * trials, (index + 1) * trials)
        return self._map_tensors(lambda array: array[:, part])

    @property
    def flat(self) -> Record:
        """Return rounds and trials together, [R S, ...]."""
        return self._map_tensors(lambda array: array.reshape(-1, *array.shape[2:]))

    def _map_tensors(self, change: Callable[[np.ndarray], np.ndarray]) -> Record:
        changed: dict[str, Any] = {
            name: change(one) for name, one in vars(self).items() if name != "reals"
        }
        return replace(self, **changed)


def _build_cohort(
    senders: Sequence[int], num_devices: int, weights: Sequence[float] | None, streams: Streams
) -> Cohort:
    """Make a cohort of the same devices in all trials."""
    trials, count = streams.num_trials, len(senders)
    trial = torch.arange(trials, device=streams.device).repeat_interleave(count)
    device = torch.tensor(list(senders), device=streams.device).repeat(trials)
    row = torch.tensor(list(weights or [1.0] * count), dtype=streams.dtype)
    weight = (row / row.sum()).repeat(trials).to(streams.device)
    return Cohort.create(trial, device, weight, (count,) * trials, num_devices)
