"""Decentralised averaging with neighbours in a graph, without a server.

Each device trains its own model. It receives its neighbours' models over the scenario's uplink as a
server does: in a slot of its own, in which its neighbours invert their channels to it. Then x_i
becomes W_ii x_i + sum_j W_ij x_j, with doubly stochastic W and an estimate instead of the sum. A
device does not receive while it transmits: `assign_slots` decides which devices receive at the same
time. A round takes as many slots. On a link that is not ideal, signals from outside the
neighbourhood are neglected.

All devices start from one model. Low-rank models are sent as their weights and truncated again.

References
----------
Shi, Zhou, Shi 2021, "Over-the-Air Decentralized Federated Learning", IEEE ISIT, arXiv 2106.08011.
Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS,
arXiv 1705.09056: D-PSGD.
Xiao, Boyd, Lall 2005, "A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus",
IPSN: Metropolis weights.
Xiao, Boyd 2004, "Fast linear iterations for distributed averaging", Systems & Control Letters 53:
convergence factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl import uplink
from otafl.algorithms.base import Algorithm, select_shared
from otafl.algorithms.custom import get_class
from otafl.channels.base import Channel, Positions
from otafl.core import registry
from otafl.core.contracts import Cohort, Group, Hyper, LinkReport, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.files import MIB, read_text
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_purpose
from otafl.devices import compute
from otafl.topology.base import Exchange, PartitionScope, Rows, Topology
from otafl.uplink.base import deliver

MAX_BYTES = 256 * MIB
"""Largest size of a file of weights, for about 5,000 nodes."""

TOLERANCE = 1e-6
"""Largest deviation from 1 of the sums of rows and columns of weights."""


def ring_edges(nodes: int) -> np.ndarray:
    """Return the two neighbours of each node on a ring, bool [N, N]."""
    place = np.arange(nodes)
    apart = (place[:, None] - place) % nodes
    return np.isin(apart, (1, nodes - 1)) & (apart != 0)


def torus_edges(nodes: int) -> np.ndarray:
    """Return the four neighbours of each node on a torus as square as possible, bool [N, N]."""
    high = next(side for side in range(math.isqrt(nodes), 0, -1) if nodes % side == 0)
    wide = nodes // high
    down, across = ring_edges(high), ring_edges(wide)
    return np.kron(np.eye(high, dtype=bool), across) | np.kron(down, np.eye(wide, dtype=bool))


def complete_edges(nodes: int) -> np.ndarray:
    """Return all other nodes as neighbours, bool [N, N]."""
    return ~np.eye(nodes, dtype=bool)


def geometric_edges(places: np.ndarray, reach: float) -> np.ndarray:
    """Return the nodes within reach of each other, bool [N, N], for positions [N, 2]."""
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    return (apart <= reach) & complete_edges(len(places))


def is_connected(edges: np.ndarray) -> bool:
    """Return whether a path leads from each node to each other, for edges bool [N, N]."""
    seen = np.zeros(len(edges), bool)
    seen[0] = True
    while True:
        more = seen | edges[seen].any(0)
        if (more == seen).all():
            return bool(seen.all())
        seen = more


def metropolis_weights(edges: np.ndarray) -> np.ndarray:
    r"""Compute the Metropolis weights of a graph.

    Parameters
    ----------
    edges : ndarray, bool [N, N]
        Neighbours of each node.

    Returns
    -------
    ndarray, float64 [N, N]
        Doubly stochastic weights W.

    Notes
    -----
    For neighbours i and j with degrees d,

    .. math:: W_{ij} = 1 / (1 + \max(d_i, d_j)), \qquad W_{ii} = 1 - \sum_{j \ne i} W_{ij}.

    References
    ----------
    Xiao, Boyd, Lall 2005.
    """
    degree = edges.sum(1)
    weights = edges / (1.0 + np.maximum(degree[:, None], degree))
    return weights + np.diag(1.0 - weights.sum(1))


def assign_slots(edges: np.ndarray) -> np.ndarray:
    """Return the slot [N] in which each node receives its neighbours.

    Two nodes share a slot if neither is the other's neighbour and they have no neighbour in common.
    A node cannot receive while it transmits, and it can invert only one channel at a time. The
    assignment is greedy, and starts with the nodes that clash with most others.
    """
    near = edges | edges.T
    clash = (near | (near.astype(int) @ near.astype(int) > 0)) & complete_edges(len(edges))
    slot = np.full(len(edges), -1)
    for node in np.argsort(-clash.sum(1), kind="stable"):
        taken = set(slot[clash[node]].tolist())
        slot[node] = next(number for number in range(len(edges)) if number not in taken)
    return slot


def read_weights(path: str) -> np.ndarray:
    """Read averaging weights from a CSV file.

    Parameters
    ----------
    path : str
        File with a line for each node.

    Returns
    -------
    ndarray, float64 [N, N]
        Doubly stochastic weights W.

    Raises
    ------
    UserError
        If the file cannot be read, or the weights are not doubly stochastic.
    """
    key = "topology.path"
    try:
        text = read_text(path, MAX_BYTES)
        if not text.strip():
            raise ValueError("it is empty")
        weights = np.loadtxt(text.splitlines(), delimiter=",", ndmin=2, quotechar='"')
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(
            f"{key}: '{path}' cannot be read as a table of numbers ({reason}); must be a CSV file "
            "with a line for each node"
        ) from None
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise UserError(
            f"{key}: '{path}' has {len(weights)} lines; must have as many numbers in each"
        )
    sums = np.concatenate([weights.sum(0), weights.sum(1)])
    if not np.isfinite(sums).all() or (weights < 0).any() or np.abs(sums - 1).max() > TOLERANCE:
        raise UserError(
            f"{key}: the weights of '{path}' are not doubly stochastic; must be at least 0, with "
            "lines and columns that sum to 1"
        )
    return weights


PLACES = declare_purpose("graph_places", __name__)

DRAWS = 100
"""Largest number of draws of positions until they make a connected graph."""

_EDGES = {"ring": ring_edges, "torus": torus_edges, "complete": complete_edges}

WHOLE = {
    "codec": "identity",
    "downlink": "ideal",
    "devices.availability": "always",
    "devices.selection": "uniform",
}
"""Component of each section that a graph supports, because the others need a server."""


class Graph(Topology):
    """Topology in which every device is its own server."""

    exchanges = True
    together = True

    class Settings(Topology.Settings):
        name: Literal["graph"] = "graph"
        shape: Literal["ring", "torus", "complete", "geometric", "file"] = "ring"
        """neighbours of a device. ring: the two next. torus: the four next on a torus. complete:
        all. geometric: all within reach of random positions in a unit square. file: those with a
        weight other than 0 in a file"""
        reach: float = Field(0.5, gt=0)
        """with geometric, the largest distance of neighbours in the unit square"""
        path: str | None = Field(None, min_length=1)
        """with file, a CSV file of the weights W with a line for each device"""

        def find_conflicts(self) -> Iterator[str]:
            if (self.shape == "file") != (self.path is not None):
                yield "path and shape: file need each other; give both or neither"

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
                text = f"got {count}, with which no device has a neighbour; must be at least 2"
                yield make_problem(text, "devices.count", "topology")
            reason = get_class(method).excludes.get("merging")
            if reason:
                text = (
                    f"neighbours average their models, but '{method.name}' {reason}; use topology: "
                    "star, or another algorithm"
                )
                yield make_problem(text, "topology", "algorithm")
            for key, alone in WHOLE.items():
                section = scenario
                for part in key.split("."):
                    section = getattr(section, part)
                if section.name != alone:
                    text = f"'{section.name}' needs a server, which a graph does not have"
                    yield make_problem(f"{text}; use {alone}", key, "topology")
            for name in ("participants", "senders"):
                if getattr(scenario.devices, name) not in (None, count):
                    text = "in a graph all devices take part in every round; leave it out"
                    yield make_problem(text, f"devices.{name}", "topology")
            if scenario.transport.assumes_increments:
                text = (
                    f"'{scenario.transport.name}' {scenario.transport.assumes_increments}, and "
                    "neighbours send each other their models; use over_the_air"
                )
                yield make_problem(text, "transport", "topology")
            if scenario.privacy.clip is not None:
                text = "is accounted for one server; leave it out, or use topology: star"
                yield make_problem(text, "privacy.clip", "topology")

    def __init__(self, settings: Any, rows: Rows, hyper: Hyper) -> None:
        super().__init__(settings, rows, hyper)
        nodes, device = rows.servers, rows.streams.device
        every = [self._compute_weights(trial) for trial in range(rows.trials.num_trials)]
        edges = [(one != 0) & complete_edges(nodes) for one in every]
        sections = [row.devices.compute for row in rows.scenarios]
        hardware = compute.build(sections, 1, rows.streams, self.first_devices)
        power_db = hardware.power_db.reshape(-1, nodes).repeat(nodes, 0)  # of a row's transmitters
        self._link = uplink.build(rows.given, nodes, rows.get_link_streams(0), power_db=power_db)
        different = {one.tobytes(): one for one in edges}
        slots = {key: int(assign_slots(one).max()) + 1 for key, one in different.items()}
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

    def _compute_weights(self, trial: int) -> np.ndarray:
        """Compute W [N, N] of a trial. Raises UserError if the graph is not connected."""
        settings, nodes = self.settings, self.rows.servers
        if settings.shape == "geometric":
            for draw in range(DRAWS):  # the first draw of positions whose graph is connected
                places = self.rows.trials.draw_uniform(PLACES, draw, (nodes, 2))[trial]
                edges = geometric_edges(places.double().cpu().numpy(), settings.reach)
                if is_connected(edges):
                    return metropolis_weights(edges)
            raise UserError(
                f"topology.reach: got {settings.reach:g}, which connects {nodes} devices in none "
                f"of {DRAWS} draws of their positions; use a longer one"
            )
        if settings.path is None:
            return metropolis_weights(_EDGES[settings.shape](nodes))
        weights = read_weights(settings.path)
        if len(weights) != nodes:
            raise UserError(
                f"topology.path: '{settings.path}' has {len(weights)} devices; must be {nodes}, "
                "as devices.count"
            )
        if not is_connected((weights != 0) & complete_edges(nodes)):
            raise UserError(
                f"topology.path: the graph of '{settings.path}' is not connected; must be "
                "connected, so that every model reaches every device"
            )
        return weights

    def get_positions(self, channel: Channel, round: int, trial: int = 0) -> Positions | None:
        return None

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange:
        """Receive the neighbours' models and average."""
        shared = select_shared(server)
        payload = (Group({name: block[self._source] for name, block in shared.items()}),)
        state = self._link.channel.get_state(round)
        received, report = deliver(self._link.transport, payload, self._cohort, state, round)
        (neighbours,), mixed = received.mean, {}
        for name, block in shared.items():
            # W_ii x_i plus 1 - W_ii times the received mean, or x_i without a delivery
            kept = unsqueeze_like(self._kept, block).to(block)
            new = kept * block + (1.0 - kept) * neighbours[name]
            if received.any_delivered is not None:
                new = torch.where(unsqueeze_like(received.any_delivered, block), new, block)
            mixed[name] = new
        seconds = np.zeros(len(self._kept))
        return Exchange(server | mixed, seconds, self._spread_cost(report))

    def _spread_cost(self, report: LinkReport) -> LinkReport:
        """Return a report of the round's cost by device [S N, 1], with all slots' channel uses.

        The report of the slots is by receiver and transmitter, [S N, N].
        """
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
        shared = select_shared(server)
        nodes = self.rows.servers
        distance = size = torch.zeros(len(self._kept) // nodes, dtype=torch.float64)
        for block in shared.values():
            apart = block.double().unflatten(0, (-1, nodes)).flatten(2).cpu()
            mean = apart.mean(1, keepdim=True)
            distance = distance + (apart - mean).square().sum((1, 2)) / nodes
            size = size + mean.square().sum((1, 2))
        gap: np.ndarray = (distance / size).repeat_interleave(nodes).numpy()
        return {"consensus_error": gap}
