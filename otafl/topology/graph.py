"""Let devices average with their neighbours in a graph, without a server.

Each device trains its own model, and hears its neighbours' models over the scenario's uplink as a
server would: in a slot of its own, in which its neighbours invert their channels to it. Then x_i
becomes W_ii x_i + sum_j W_ij x_j, with doubly stochastic W and an estimate in the place of the sum.
A device does not hear while it sends: `mixing.slots` says who hears at the same time, and a round
takes as many slots. Over a link that is not ideal, senders further away are not heard.

All start from one model. Low-rank models are sent as their weights and truncated again.

References
----------
Shi, Zhou, Shi 2021, "Over-the-Air Decentralized Federated Learning", IEEE ISIT, arXiv 2106.08011.
Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS,
arXiv 1705.09056: D-PSGD.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl import uplink
from otafl.algorithms.base import Algorithm
from otafl.algorithms.custom import get_class
from otafl.channels.base import Channel
from otafl.channels.positions import Positions
from otafl.core import registry
from otafl.core.contracts import Cohort, Group, Hyper, LinkReport, Received, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_purpose
from otafl.devices import compute
from otafl.topology import mixing
from otafl.topology.base import Exchange, PartitionScope, Topology
from otafl.topology.rows import Rows
from otafl.uplink.base import deliver

PLACES = declare_purpose("graph_places", __name__)

DRAWS = 100
"""Places are drawn so often at most until they make a connected graph."""

_EDGES = {"ring": mixing.ring_edges, "torus": mixing.torus_edges, "complete": mixing.complete_edges}
_WEIGHTS = {"metropolis": mixing.metropolis_weights, "max_degree": mixing.max_degree_weights}

WHOLE = {
    "codec": "identity",
    "downlink": "ideal",
    "devices.availability": "always",
    "devices.selection": "uniform",
}
"""Choices that would mean something else, or nothing, without a server."""


class Graph(Topology):
    together = True

    class Settings(Topology.Settings):
        reads: ClassVar = ("path",)
        name: Literal["graph"] = "graph"
        shape: Literal["ring", "torus", "complete", "geometric", "file"] = "ring"
        """who hears whom: the two next, four next on a torus, all, all within reach of random
        places in a unit square, or those whose weight in a file is not 0"""
        reach: float = Field(0.5, gt=0)
        """of geometric, distance in the unit square up to which one hears"""
        path: str | None = Field(None, min_length=1)
        """of file, a CSV file of the weights W, a line a device; relative paths count from the
        working directory"""
        weights: Literal["metropolis", "max_degree"] = "metropolis"
        """W_ij between neighbours: 1 / (1 + max(d_i, d_j)) (Xiao, Boyd, Lall 2005), or 1 / (1 + max
        d)"""

        def find_conflicts(self) -> Iterator[str]:
            if (self.shape == "file") != (self.path is not None):
                yield "path and shape: file go together; give both or none of them"

        def count(self, scenario: Any) -> int:
            count: int = scenario.devices.count
            return count

        @property
        def partition_scope(self) -> PartitionScope:
            return "all"

        def make_server_scenario(self, scenario: Any) -> Any:
            """Return the scenario of one device, which is its own server."""
            alone = {"count": 1, "participants": None, "senders": None}
            return scenario.model_copy(
                update={
                    "devices": scenario.devices.model_copy(update=alone),
                    "transport": registry.load_settings_class("transport", "ideal")(),
                }
            )

        def check(self, scenario: Any) -> Iterable[Problem]:
            count, method = scenario.devices.count, scenario.algorithm
            if count < 2:
                text = f"got {count}, and no device has a neighbour; 2 or more would do"
                yield make_problem(text, "devices.count", "topology")
            if not get_class(method).supports_merging:
                text = (
                    f"neighbours average their models, and the blocks of '{method.name}' make "
                    "none; topology: star would do, or another algorithm"
                )
                yield make_problem(text, "topology", "algorithm")
            for key, alone in WHOLE.items():
                section = scenario
                for part in key.split("."):
                    section = getattr(section, part)
                if section.name != alone:
                    text = f"'{section.name}' needs a server, which a graph has not"
                    yield make_problem(f"{text}; {alone} would do", key, "topology")
            for name in ("participants", "senders"):
                if getattr(scenario.devices, name) not in (None, count):
                    text = "in a graph all devices take part in every round; leave it out"
                    yield make_problem(text, f"devices.{name}", "topology")
            if scenario.transport.assumes_increments:
                text = (
                    f"'{scenario.transport.name}' {scenario.transport.assumes_increments}, and "
                    "neighbours send each other their models; over_the_air would do"
                )
                yield make_problem(text, "transport", "topology")
            if scenario.privacy.clip is not None:
                text = "is accounted for one server; leave it out, or topology: star would do"
                yield make_problem(text, "privacy.clip", "topology")

    def __init__(self, settings: Any, rows: Rows, hyper: Hyper) -> None:
        super().__init__(settings, rows, hyper)
        nodes, device = rows.servers, rows.streams.device
        every = [self._compute_weights(trial) for trial in range(rows.trials.num_trials)]
        edges = [(one != 0) & mixing.complete_edges(nodes) for one in every]
        self._link = uplink.build(
            rows.given, nodes, rows.get_link_streams(0), power_db=self._draw_power_db()
        )
        different = {one.tobytes(): one for one in edges}
        slots = {key: int(mixing.assign_slots(one).max()) + 1 for key, one in different.items()}
        self._slots = torch.tensor([slots[one.tobytes()] for one in edges]).to(device)
        weights = torch.from_numpy(np.stack(every)).to(device, rows.streams.dtype)
        neighbours = torch.from_numpy(np.stack(edges)).to(device).flatten(0, 1)
        row, sender = neighbours.nonzero().unbind(1)
        counts = tuple(neighbours.sum(1).tolist())
        self._kept = weights.diagonal(dim1=1, dim2=2).flatten()
        self._cohort = Cohort.create(row, sender, weights.flatten(0, 1)[neighbours], counts, nodes)
        self._source = row // nodes * nodes + sender

    @property
    def init_streams(self) -> Streams:
        return self.rows.first

    @property
    def first_devices(self) -> list[int]:
        return [row % self.rows.servers for row in range(len(self.rows.scenarios))]

    def _draw_power_db(self) -> np.ndarray:
        """Return the transmit power [S N, N] of each row's N senders, in dB over the channel's."""
        sections = [row.devices.compute for row in self.rows.scenarios]
        hardware = compute.build(sections, 1, self.rows.streams, self.first_devices)
        nodes = self.rows.servers
        return hardware.power_db.reshape(-1, nodes).repeat(nodes, 0)

    def _compute_weights(self, trial: int) -> np.ndarray:
        """Return W [N, N] of a trial. Raises UserError for a graph that is not connected."""
        settings, nodes = self.settings, self.rows.servers
        if settings.shape == "geometric":
            return _WEIGHTS[settings.weights](self._draw_edges(trial))
        if settings.path is None:
            return _WEIGHTS[settings.weights](_EDGES[settings.shape](nodes))
        weights = mixing.read_weights(settings.path)
        if len(weights) != nodes:
            raise UserError(
                f"topology.path: '{settings.path}' has {len(weights)} devices, and devices.count "
                f"is {nodes}; as many would do"
            )
        if not mixing.is_connected((weights != 0) & mixing.complete_edges(nodes)):
            raise UserError(
                f"topology.path: '{settings.path}' leaves devices that no model gets to from the "
                "others; a connected graph would do"
            )
        return weights

    def _draw_edges(self, trial: int) -> np.ndarray:
        """Return who is within reach, in the first draw of places in which the graph is connected.
        Raises UserError where none is of many."""
        nodes, reach = self.rows.servers, self.settings.reach
        for draw in range(DRAWS):
            places = self.rows.trials.draw_uniform(PLACES, draw, (nodes, 2))[trial]
            edges = mixing.geometric_edges(places.double().cpu().numpy(), reach)
            if mixing.is_connected(edges):
                return edges
        raise UserError(
            f"topology.reach: got {reach:g}, which connected {nodes} devices in none of {DRAWS} "
            "draws of their places; a longer one would do"
        )

    def get_positions(self, channel: Channel, round: int) -> Positions | None:
        return None

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange:
        """Let each hear its neighbours, and average."""
        shared = algorithm.export_shared(server)
        payload = (Group({name: block[self._source] for name, block in shared.items()}),)
        state = self._link.channel.get_state(round)
        received, report = deliver(self._link.transport, payload, self._cohort, state, round)
        mixed = self._mix(shared, received)
        seconds = np.zeros(len(self._kept))
        return Exchange(algorithm.import_shared(server, mixed), seconds, self._spread_cost(report))

    def _mix(self, own: Tensors, received: Received) -> Tensors:
        """Return W_ii x_i plus the rest of the weight of what was heard, x_i where nothing was."""
        (neighbours,) = received.mean
        mixed = {}
        for name, block in own.items():
            kept = unsqueeze_like(self._kept, block).to(block)
            new = kept * block + (1.0 - kept) * neighbours[name]
            if received.any_delivered is not None:
                new = torch.where(unsqueeze_like(received.any_delivered, block), new, block)
            mixed[name] = new
        return mixed

    def _spread_cost(self, report: LinkReport) -> LinkReport:
        """Return what the round cost each device [S N, 1], given what each slot's senders [S N, N]
        spent, and the channel uses of all slots."""
        nodes = self.rows.servers
        slots = self._slots.repeat_interleave(nodes).to(report.symbols)

        def gather_sender(table: Tensor) -> Tensor:
            return table.unflatten(0, (-1, nodes)).sum(1).reshape(-1, 1)

        return replace(
            report,
            symbols=report.symbols * slots,
            airtime_s=report.airtime_s * slots,
            power=gather_sender(report.power) / slots[:, None],
            energy_j=gather_sender(report.energy_j),
            on_air_s=gather_sender(report.on_air_s),
            delivered_mask_fns=(),
        )

    def compute_metrics(self, server: Tensors, algorithm: Algorithm) -> dict[str, np.ndarray]:
        shared = algorithm.export_shared(server)
        nodes = self.rows.servers
        distance = size = torch.zeros(len(self._kept) // nodes, dtype=torch.float64)
        for block in shared.values():
            apart = block.double().unflatten(0, (-1, nodes)).flatten(2).cpu()
            mean = apart.mean(1, keepdim=True)
            distance = distance + (apart - mean).square().sum((1, 2)) / nodes
            size = size + mean.square().sum((1, 2))
        gap: np.ndarray = (distance / size).repeat_interleave(nodes).numpy()
        return {"consensus_error": gap}
