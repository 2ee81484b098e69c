"""Topologies with servers: one, several that share a band, and a cloud over these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, select_shared
from otafl.algorithms.custom import get_class
from otafl.channels.base import Channel, InterfererMap, Positions
from otafl.core import registry
from otafl.core.contracts import Hyper, Tensors
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.topology.base import Exchange, PartitionScope, Rows, Topology
from otafl.topology.handover import Spans, choose_servers, list_served_spans
from otafl.topology.hexagons import Hexagons, build_hexagons, list_cluster_sizes
from otafl.uplink.intercell import InterCellInterference

MAX_SERVERS = 100


class CellsSettings(Topology.Settings):
    """Servers of a trial, their positions and their parts of the band."""

    servers: int = Field(7, ge=1, le=MAX_SERVERS)
    """number of servers C in a trial; `devices.count` is the number of devices of each"""
    reuse: int = Field(1, ge=1)
    """frequency reuse: number of parts into which the band is divided. A server has one part, and
    receives the devices of servers with the same part; snr_db applies to the whole band"""
    cross_gain_db: Decibels | None = None
    """mean power gain in dB of a link to another server over that to the device's own, on channels
    without positions; no inter-cell interference there if not given"""
    site_distance_m: float | None = Field(None, gt=0)
    """distance in metres between neighbouring servers, on channels with positions (umi, uma, rma);
    twice the cell's radius if not given"""
    deal: PartitionScope = "all"
    """partition of the training data. all: once, over all devices of all servers. each: for each
    server's devices anew"""

    def count(self, scenario: Any) -> int:
        return self.servers

    @property
    def partition_scope(self) -> PartitionScope:
        return self.deal

    @property
    def hexagons(self) -> Hexagons | None:
        """Cluster of servers; None if no cluster has these numbers."""
        return build_hexagons(self.servers, self.reuse)

    def make_server_scenario(self, scenario: Any) -> Any:
        """Return the scenario of one server, with its part of the band and of the noise."""
        if self.reuse == 1:
            return scenario
        channel = scenario.channel
        part = {"bandwidth_hz": channel.bandwidth_hz / self.reuse}
        if not channel.is_physical:
            snr_db = (
                channel.implied_settings["snr_db"] if channel.snr_db is None else channel.snr_db
            )
            part["snr_db"] = snr_db + 10.0 * math.log10(self.reuse)
        return scenario.model_copy(update={"channel": channel.model_copy(update=part)})

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return conflicts between positions, band and transport."""
        if self.hexagons is None:
            yield from self._describe_no_layout()
            return
        yield from self._find_misplaced(scenario.channel)
        if self.has_intercell(scenario):
            yield from self._find_intercell_problems(scenario)

    def list_notes(self, scenario: Any) -> Iterable[str]:
        if (
            self.hexagons is None
            or not self.hexagons.is_shared
            or scenario.transport.name == "ideal"
        ):
            return
        if not self.has_intercell(scenario):
            yield (
                f"topology: servers have no inter-cell interference, because channel "
                f"'{scenario.channel.name}' has no positions and topology.cross_gain_db is not "
                f"given; give it, such as -10, or use reuse: {self.servers} if that is intended"
            )

    def has_intercell(self, scenario: Any) -> bool:
        """Return whether servers receive each other's devices."""
        assert self.hexagons is not None
        gains = _has_positions(scenario.channel) or self.cross_gain_db is not None
        return self.hexagons.is_shared and gains

    def _find_misplaced(self, channel: Any) -> Iterable[Problem]:
        """Yield conflicts between distances, gains and the channel."""
        if _has_positions(channel) and self.cross_gain_db is not None:
            text = (
                f"got {self.cross_gain_db:g}, but gains in a cell follow from the positions of "
                "its devices; leave it out"
            )
            yield make_problem(text, "topology.cross_gain_db", "channel")
        distance, radius = self.site_distance_m, getattr(channel, "cell_radius_m", None)
        if distance is None:
            return
        if radius is None:
            text = (
                f"got {distance:g}, but channel '{channel.name}' has no cell; use cross_gain_db, "
                "or a channel umi, uma or rma"
            )
            yield make_problem(text, "topology.site_distance_m", "channel")
        elif distance < radius + channel.min_distance_m:
            text = (
                f"got {distance:g}; must be at least {radius + channel.min_distance_m:g}, so that "
                f"devices stay min_distance_m away from other servers"
            )
            yield make_problem(text, "topology.site_distance_m", "channel")

    def _describe_no_layout(self) -> Iterable[Problem]:
        """Yield the problem of numbers of servers and parts without a cluster."""
        known = list_cluster_sizes(MAX_SERVERS)
        if self.servers not in known:
            near = sorted(known, key=lambda one: abs(one - self.servers))[:3]
            text = (
                f"got {self.servers}; must be i^2 + i j + j^2, as such numbers of hexagons tile "
                f"the plane; use {', '.join(map(str, sorted(near)))}"
            )
            yield make_problem(text, "topology.servers")
            return
        fits = [one for one in known if build_hexagons(self.servers, one) is not None]
        text = (
            f"got {self.reuse}, with which cells on the same part of the band touch where "
            f"{self.servers} servers wrap around; use {', '.join(map(str, fits))}"
        )
        yield make_problem(text, "topology.reuse", "topology.servers")

    def _find_intercell_problems(self, scenario: Any) -> Iterable[Problem]:
        """Yield parts that do not support inter-cell interference."""
        kind = registry.load_component("transport", scenario.transport.name)
        if not kind.supports_intercell and scenario.transport.name != "ideal":
            text = (
                f"'{scenario.transport.name}' does not support inter-cell interference; use "
                f"over_the_air, or a topology without it (reuse: {self.servers})"
            )
            yield make_problem(text, "transport", "topology")
        if kind.supports_intercell:
            text = (
                "does not support inter-cell interference; leave it out, or use a topology "
                f"without it (reuse: {self.servers})"
            )
            for key in ("carrier_offset", "timing_offset", "clip_db"):
                if not scenario.impairments.is_default(key):
                    yield make_problem(text, f"impairments.{key}", "topology")


def _has_positions(channel: Any) -> bool:
    """Return whether the gains of a section's channel follow from positions."""
    return bool(registry.load_component("channel", channel.name).has_positions)


class Cells(Topology):
    """Several servers, each with its own devices, that share a band.

    Every server trains its own model over its cell. All slots coincide, so a server receives the
    devices of the other servers on its part of the band as inter-cell interference. These are the
    actual signals, over channels of their own (`otafl.uplink.intercell`). With reuse r the band is
    divided into r parts, over which symbols last r times as long, and a device's power meets 1/r of
    the noise.

    In a cell of 3GPP (umi, uma, rma) servers lie on a hexagonal lattice that wraps around. Links to
    other servers have a path loss and line of sight by their own length. A server receives at least
    the first two tiers of co-channel cells, which are 18 in the plane. A torus with fewer servers
    shows some at several places (`Hexagons.images`). Each place has its own drop, rays and fading,
    as distinct cells have, with the signals and powers of the one server's devices. On channels
    without positions, `cross_gain_db` is the gain of each other server's devices, which are
    received once.
    """

    class Settings(CellsSettings):
        small: ClassVar[Mapping[str, Any]] = {"servers": 3, "cross_gain_db": -3.0}

        name: Literal["cells"] = "cells"

    def __init__(self, settings: Any, rows: Rows, hyper: Hyper) -> None:
        super().__init__(settings, rows, hyper)
        self._receives_others = settings.has_intercell(rows.scenarios[0])
        self._trace = getattr(rows.scenarios[0].channel, "trace", None)
        self.together = self._receives_others or self._trace is not None
        self.device_streams = rows.streams if self._trace is None else rows.first

    def get_uplink_channel(self, channel: Channel) -> Channel:
        """Return the channel to the servers, each of which can have all devices of a trace."""
        if self._trace is None:
            return channel
        self._paths, servers = channel, self.rows.servers
        number = torch.arange(channel.streams.num_trials, device=channel.streams.device)
        place = torch.from_numpy(self._list_places(channel)).to(number.device)
        first = (number - number % servers)[:, None]
        shift = -place[number % servers][:, None]
        return channel.make_interfering(InterfererMap(first, shift, 1.0, channel.streams))

    def list_presence(self, channel: Any) -> list[list[Spans]] | None:
        """List the intervals in which each server serves each device of a trace."""
        if self._trace is None:
            return None
        presence_s, servers = channel.presence_s, self.rows.servers
        time_s = np.arange(presence_s.min(), presence_s.max(), self._trace.measure_every_s)
        trials = channel.streams.num_trials
        gain = [
            channel.compute_gains(torch.full((1, trials), one, dtype=torch.float64))
            for one in time_s
        ]
        gain_db = 10.0 * torch.cat(gain).double().log10().cpu().numpy()  # [R, S C, K]
        spans: list[list[Spans]] = []
        for first in range(0, trials, servers):
            serving = choose_servers(gain_db[:, first : first + servers], self._trace.margin_db)
            spans += list_served_spans(serving, time_s, presence_s, servers)
        return spans

    def build_intercell(self, channel: Channel) -> InterCellInterference | None:
        layout = self.settings.hexagons
        if not self._receives_others:
            return None
        servers, streams = self.rows.servers, self.rows.streams
        interferers = np.array(layout.list_co_channel_sites())
        shift = np.zeros((*interferers.shape, 2))
        if channel.has_positions:
            interferers, shift = (
                layout.images.site,
                layout.images.shift * self._get_site_distance_m(channel),
            )
        first = torch.arange(0, len(self.rows.scenarios), servers, device=streams.device)
        sites = torch.from_numpy(interferers).to(streams.device)
        cross_gain_db = self.settings.cross_gain_db
        elsewhere = InterfererMap(
            row_index=(first[:, None, None] + sites).flatten(0, 1),
            shift_m=torch.from_numpy(np.tile(shift, (len(first), 1, 1))).to(streams.device),
            gain=1.0 if cross_gain_db is None else db_to_linear(cross_gain_db),
            streams=self.rows.get_link_streams(0),
        )
        return InterCellInterference(
            interferers.tolist(), channel.make_interfering(elsewhere), channel.devices
        )

    def get_positions(self, channel: Channel, round: int, trial: int = 0) -> Positions | None:
        first = trial * self.rows.servers
        each = [channel.get_positions(round, first + server) for server in range(self.rows.servers)]
        if not channel.has_positions or self.settings.hexagons is None:
            return each[0]
        base = self._list_places(channel)
        if self._trace is not None:  # all servers have the same devices
            own = self._paths.get_positions(round, first)
            return None if own is None else replace(own, base_m=base)
        there = [one.device_m + at for one, at in zip(each, base, strict=True) if one is not None]
        return Positions(np.concatenate(there), base)

    def _list_places(self, channel: Channel) -> np.ndarray:
        """Return the positions [C, 2] of the servers in metres."""
        return np.asarray(self.settings.hexagons.positions * self._get_site_distance_m(channel))

    def _get_site_distance_m(self, channel: Channel) -> float:
        """Return the distance between neighbouring servers in metres."""
        given: float | None = self.settings.site_distance_m
        if given is not None:
            return given
        return 2.0 * float(getattr(channel.settings, "cell_radius_m", 0.0))


class Star(Topology):
    """One server that receives all devices."""

    class Settings(Topology.Settings):
        name: Literal["star"] = "star"


BITS = 32
"""Bits of a real number on the backhaul."""


class Hierarchical(Cells):
    """Several cells whose servers average their models in a cloud every few rounds.

    Between two averages each server trains as in `cells`, interference included. Then all servers
    wait for the slowest, send their models over a backhaul, and continue with the mean. The weight
    of a server is the number of training samples of its devices. All start from the model of the
    first. Low-rank models are truncated to their rank again. Momentum, and the state of a server
    optimiser, stay at the server.

    References
    ----------
    Liu, Zhang, Song, Letaief 2020, "Client-Edge-Cloud Hierarchical Federated Learning", IEEE ICC,
    Algorithm 1.
    """

    state_attrs: ClassVar = ("bits",)
    exchanges = True

    class Settings(CellsSettings):
        small: ClassVar[Mapping[str, Any]] = {**Cells.Settings.small, "cloud_every": 1}

        name: Literal["hierarchical"] = "hierarchical"
        cloud_every: int = Field(5, ge=1)
        """rounds of the servers between two averages in the cloud"""
        backhaul_rate_bps: float = declare_stackable(1e9, gt=0)
        """bit rate in bit/s between a server and the cloud, in one direction at a time"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from super().check(scenario)
            method = scenario.algorithm
            reason = get_class(method).excludes.get("merging")
            if reason:
                text = (
                    f"the cloud averages the servers' models, but '{method.name}' {reason}; use "
                    "topology: cells, or another algorithm"
                )
                yield make_problem(text, "topology", "algorithm")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bits = np.zeros(len(self.rows.scenarios))
        self._rate_bps = self.hyper["backhaul_rate_bps"].double().cpu().numpy()

    @property
    def init_streams(self) -> Streams:
        return self.rows.first

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        if (round + 1) % self.settings.cloud_every:
            return None
        servers = self.rows.servers
        weight = share.sum(1).view(-1, servers)
        weight = weight / weight.sum(1, keepdim=True)
        shared = {
            name: torch.einsum(
                "sc,sc...->s...", weight.to(block), block.unflatten(0, (-1, servers))
            ).repeat_interleave(servers, 0)
            for name, block in select_shared(server).items()
        }
        sent = BITS * sum(block[0].numel() for block in server.values())
        self.bits += 2 * sent
        return Exchange(server | shared, 2 * sent / self._rate_bps)

    def compute_metrics(self, server: Tensors, algorithm: Algorithm) -> dict[str, np.ndarray]:
        return {"backhaul_bits": self.bits.copy()}
