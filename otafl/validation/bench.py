"""Uplinks of many Monte-Carlo trials, set up as those of a scenario, that carry known symbols."""

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
from otafl.engine.update import encode
from otafl.scenario import load_scenario
from otafl.topology import Rows
from otafl.uplink import Uplink, build
from otafl.uplink.base import deliver

CONFORMANCE = declare_family("conformance", __name__)
"""Random streams of the laws."""

POWERS = (0.3, 2.0)
"""Smallest and largest mean symbol power of devices with unequal symbols, spaced geometrically."""


@dataclass(frozen=True)
class Bench:
    """Amount and place of the computation.

    Parameters
    ----------
    device : str
        Torch device, as in `engine.device`.
    quick : bool
        Whether samples are a quarter of their size, or less.
    """

    device: str = "cpu"
    quick: bool = False

    def scale_size(self, full: int) -> int:
        """Return the size of a sample that has the size `full` in the whole suite."""
        return max(1, full // 4) if self.quick else full

    @property
    def torch_device(self) -> torch.device:
        """Torch device of the bench."""
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
    ) -> Rig:
        """Build the uplink of one stack of trials.

        Parameters
        ----------
        devices : int
            Number of devices K.
        trials : int
            Number of trials of each point. If trials have several servers, each is a trial of the
            rig.
        points : Mapping or Sequence of Mapping
            Sections of a scenario, for each point.
        weights : Sequence of float, optional
            Weights [n] of the transmitters; equal if not given.
        senders : Sequence of int, optional
            The n transmitters in ascending order; all devices if not given.
        dtype : torch.dtype
            Precision of the uplink.

        Returns
        -------
        Rig
            The uplink.
        """
        settings = [points] if isinstance(points, Mapping) else list(points)
        base = {"name": "conformance", "devices": {"count": devices}}
        base["output"] = {"save_link": True}
        scenarios = [load_scenario(base | dict(one)) for one in settings]
        stacked = [scenario for scenario in scenarios for _ in range(trials)]
        rows = Rows.build(stacked, range(len(stacked)), self.torch_device, dtype)
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
    """Uplink of S trials, in which n of K devices transmit.

    Parameters
    ----------
    link : Uplink
        The uplink.
    streams : Streams
        Random streams of the trials.
    senders : list of int
        The transmitters.
    cohort : Cohort
        Rows of the transmitters.
    """

    link: Uplink
    streams: Streams
    senders: list[int]
    cohort: Cohort

    @property
    def num_trials(self) -> int:
        """Number of trials, S."""
        return self.streams.num_trials

    @property
    def num_devices(self) -> int:
        """Number of transmitters, n."""
        return len(self.senders)

    @functools.cached_property
    def _own(self) -> slice | Tensor:
        """Index of the transmitters among the devices."""
        if self.senders == list(range(self.link.budget.budget.shape[1])):
            return slice(None)
        return torch.tensor(self.senders, device=self.streams.device)

    def _select(self, values: Tensor) -> Tensor:
        """Select the transmitters of values [..., K]."""
        return values[..., self._own].contiguous()

    @functools.cached_property
    def symbol_powers(self) -> Tensor:
        """Mean symbol powers [n] that differ."""
        low, high = (torch.tensor(power).log10().item() for power in POWERS)
        return torch.logspace(low, high, self.num_devices).to(self.cohort.weight)

    def draw_symbols(
        self, num_coordinates: int, round: int, powers: Tensor | float | None = None
    ) -> Tensor:
        """Draw normal symbols, independent over devices.

        Parameters
        ----------
        num_coordinates : int
            Real numbers of a payload, P.
        round : int
            Number of the round.
        powers : Tensor or float, optional
            Mean symbol powers, [n] or one number; `symbol_powers` if not given.

        Returns
        -------
        Tensor, [S * n, P]
            Symbols whose mean power over the payload is exactly that.
        """
        draw = self.streams.draw_device_normal(
            CONFORMANCE, round, self.cohort.trial, self.cohort.device, (num_coordinates,)
        )
        level = self.symbol_powers if powers is None else torch.as_tensor(powers).to(draw)
        root = level.expand(self.num_devices).sqrt().repeat(self.num_trials)[:, None]
        return draw / draw.square().mean(1, keepdim=True).sqrt() * root

    def send(self, x: Tensor, round: int, weighting: str = "mean") -> tuple[Tensor, LinkReport]:
        """Send a payload in a round.

        Parameters
        ----------
        x : Tensor, [S * n, P]
            Symbols of the transmitters.
        round : int
            Number of the round.
        weighting : str
            "mean" for a weighted mean, "none" for a sum.

        Returns
        -------
        estimate : Tensor, [S, P]
            Estimate of the server.
        report : LinkReport
            Report of the slot.
        """
        group = Group({"x": x}, weighting="none" if weighting == "none" else "mean")
        codec, channel = self.link.codec, self.link.channel.get_state(round)
        memory = DeviceStore(self.num_trials, self.num_devices, x.device)
        payload = encode(codec, (group,), memory, self.cohort, round, self.streams)
        received, report = deliver(self.link.transport, payload, self.cohort, channel, round)
        return codec.decode(received).mean[0]["x"], report

    def record(
        self, rounds: int, num_coordinates: int, powers: Tensor | float | None = None
    ) -> BenchRecord:
        """Record several rounds, each with a new payload.

        Parameters
        ----------
        rounds : int
            Number of rounds R.
        num_coordinates : int
            Real numbers of a payload.
        powers : Tensor or float, optional
            Mean symbol powers, as in `draw_symbols`.

        Returns
        -------
        BenchRecord
            Measurements of the rounds.
        """
        parts: dict[str, list[np.ndarray]] = {}
        for round in range(rounds):
            x = self.draw_symbols(num_coordinates, round, powers)
            estimate, report = self.send(x, round)
            values = self._record_round(x, estimate, report)
            values["gain"] = self._select(self.link.channel.get_state(round).gain)
            for name, value in values.items():
                parts.setdefault(name, []).append(value.cpu().numpy())
        return BenchRecord(
            num_coordinates=num_coordinates,
            **{name: np.stack(value) for name, value in parts.items()},
        )

    def _record_round(self, x: Tensor, estimate: Tensor, report: LinkReport) -> dict[str, Tensor]:
        """Return the recorded values of a round."""
        saved = {name.partition("/")[0]: value for name, value in report.saved_tensors.items()}
        each = ("h", "h_hat", "p", "c", "active", "m")
        one = {name: self._select(saved[name][:, 0]) for name in each}
        share = self._select(saved["weight"])
        weight = share * one["active"]
        rows = x.view(self.num_trials, self.num_devices, -1)
        total = weight.sum(1, keepdim=True).clamp_min(1e-30)
        target = torch.einsum("sk,skp->sp", weight / total, rows)
        gram = self._select(saved["gram"][:, 0, self._own])
        gain = one["h"] * one["p"] / saved["eta"][:, :1].sqrt()
        off = (gain * weight / total).real - share
        return one | {
            "eta": saved["eta"][:, 0],
            "noise": saved["noise"][:, 0],
            "error": (estimate - target).square().mean(1),
            "weight": share,
            "power": self._select(report.power),
            "budget": self._select(self.link.budget.budget),
            "nmse": report.nmse,
            "exact": torch.einsum("sk,skp->sp", share, rows).square().sum(1),
            "distortion": torch.einsum("sk,skj,sj->s", off, gram.real, off),
        }

    def draw_fading(self, rounds: int, symbols: int = 1) -> np.ndarray:
        """Draw the fading [R, S, K, A, B, F] of payloads of so many symbols, from round 0 on."""
        states = (self.link.channel.get_state(round) for round in range(rounds))
        return torch.stack([state.extend_to(symbols) for state in states]).cpu().numpy()


@dataclass(frozen=True)
class BenchRecord:
    """Measurements of R rounds of S trials, for the K transmitters.

    Parameters
    ----------
    num_coordinates : int
        Real numbers of a payload.
    h, h_hat, p, c, active, m : ndarray, [R, S, K]
        Values of `LinkReport.saved_tensors`.
    eta, noise : ndarray, [R, S]
        Receive scaling and noise variance.
    error : ndarray, [R, S]
        Mean squared error per coordinate, about the mean over the active devices.
    weight, power, budget : ndarray, [R, S, K]
        Aggregation weights, transmit powers and power budgets.
    gain : ndarray, [R, S, K]
        Large-scale gains.
    nmse : ndarray, [R, S]
        Reported NMSE.
    exact : ndarray, [R, S]
        Squared norm of the error-free mean.
    distortion : ndarray, [R, S]
        Squared norm of the error without noise, from the saved Gram matrices.
    """

    num_coordinates: int
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

    def select_point(self, index: int, points: int) -> BenchRecord:
        """Return the record of the trials of one of several points."""
        trials = self.eta.shape[1] // points
        part = slice(index * trials, (index + 1) * trials)
        return self._map_tensors(lambda array: array[:, part])

    @property
    def flat(self) -> BenchRecord:
        """Record with rounds and trials as one dimension, [R S, ...]."""
        return self._map_tensors(lambda array: array.reshape(-1, *array.shape[2:]))

    def _map_tensors(self, change: Callable[[np.ndarray], np.ndarray]) -> BenchRecord:
        changed: dict[str, Any] = {
            name: change(one) for name, one in vars(self).items() if name != "num_coordinates"
        }
        return replace(self, **changed)


def _build_cohort(
    senders: Sequence[int], num_devices: int, weights: Sequence[float] | None, streams: Streams
) -> Cohort:
    """Build a cohort of the same devices in all trials."""
    trials, count = streams.num_trials, len(senders)
    trial = torch.arange(trials, device=streams.device).repeat_interleave(count)
    device = torch.tensor(list(senders), device=streams.device).repeat(trials)
    row = torch.tensor(list(weights or [1.0] * count), dtype=streams.dtype)
    weight = (row / row.sum()).repeat(trials).to(streams.device)
    return Cohort.create(trial, device, weight, (count,) * trials, num_devices)
