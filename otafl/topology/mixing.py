"""Make graphs of who hears whom, the weights that neighbours average with, and the slots in which
they hear each other.

References
----------
Xiao, Boyd, Lall 2005, "A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus",
IPSN: Metropolis weights.
Xiao, Boyd 2004, "Fast linear iterations for distributed averaging", Systems & Control Letters 53:
maximum-degree weights and convergence factors.
Brelaz 1979, "New methods to color the vertices of a graph", Communications of the ACM 22(4): the
order in which slots are searched.
"""

from __future__ import annotations

import csv
import math

import numpy as np

from otafl.core.errors import UserError
from otafl.core.inputs import MIB, read_text

MAX_BYTES = 256 * MIB
"""Of a file of weights: about 5,000 nodes."""

SEARCH = 20
"""Steps a node in which a search looks for fewer slots."""

TOLERANCE = 1e-6
"""Rows and columns of weights may miss one by so much."""


def ring_edges(nodes: int) -> np.ndarray:
    """Return who is next to whom on a ring, [N, N] bool."""
    place = np.arange(nodes)
    apart = (place[:, None] - place) % nodes
    return np.isin(apart, (1, nodes - 1)) & (apart != 0)


def torus_edges(nodes: int) -> np.ndarray:
    """Return the four neighbours of each on a torus, as square as the number allows."""
    high = next(side for side in range(math.isqrt(nodes), 0, -1) if nodes % side == 0)
    wide = nodes // high
    down, across = ring_edges(high), ring_edges(wide)
    return np.kron(np.eye(high, dtype=bool), across) | np.kron(down, np.eye(wide, dtype=bool))


def complete_edges(nodes: int) -> np.ndarray:
    """Return everybody as neighbours."""
    return ~np.eye(nodes, dtype=bool)


def geometric_edges(places: np.ndarray, reach: float) -> np.ndarray:
    """Return who is within reach: places [N, 2]."""
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    return (apart <= reach) & complete_edges(len(places))


def is_connected(edges: np.ndarray) -> bool:
    """Say whether there is a way from each to each, [N, N] bool."""
    seen = np.zeros(len(edges), bool)
    seen[0] = True
    while True:
        more = seen | edges[seen].any(0)
        if (more == seen).all():
            return bool(seen.all())
        seen = more


def metropolis_weights(edges: np.ndarray) -> np.ndarray:
    """Return the Metropolis weights of Xiao, Boyd and Lall: W_ij = 1 / (1 + max(d_i, d_j)) between
    neighbours, what is left to one at W_ii."""
    degree = edges.sum(1)
    return _fill_diagonal(edges / (1.0 + np.maximum(degree[:, None], degree)))


def max_degree_weights(edges: np.ndarray) -> np.ndarray:
    """Return W_ij = 1 / (1 + max d) between neighbours, what is left to one at W_ii.

    Xiao and Boyd's weight is 1 / max d, with which an even ring never agrees: its W_ii are 0. Xiao,
    Boyd and Lall give the same name to 1 / N, which needs no degree.
    """
    return _fill_diagonal(edges / (1.0 + edges.sum(1).max()))


def _fill_diagonal(weights: np.ndarray) -> np.ndarray:
    return weights + np.diag(1.0 - weights.sum(1))


def compute_second_modulus(weights: np.ndarray) -> float:
    """Return by what an exchange shrinks the nodes' distance from their mean at least: the largest
    singular value of W - 1 1^T / N, for symmetric W its second largest eigenvalue modulus."""
    return float(np.linalg.norm(weights - 1.0 / len(weights), 2))


def assign_slots(edges: np.ndarray) -> np.ndarray:
    """Return the slot [N] in which each hears its neighbours.

    Two hear in one slot if neither is the other's neighbour and they have none in common: a node
    cannot hear while it sends, nor send to two whose channels it would have to invert. Greedy,
    those with most such others first. If that takes more slots than the largest neighbourhood has
    nodes, a search (`_search_colours`) looks for fewer.
    """
    near = edges | edges.T
    clash = (near | (near.astype(int) @ near.astype(int) > 0)) & complete_edges(len(edges))
    slot = np.full(len(edges), -1)
    for node in np.argsort(-clash.sum(1), kind="stable"):
        taken = set(slot[clash[node]].tolist())
        slot[node] = next(number for number in range(len(edges)) if number not in taken)
    least = 1 + int(near.sum(1).max())
    better: np.ndarray | None = slot
    while better is not None:
        slot = better
        better = _search_colours(clash, int(slot.max())) if slot.max() >= least else None
    return slot


def _search_colours(clash: np.ndarray, colours: int) -> np.ndarray | None:
    """Colour the nodes [N] so that no two that clash [N, N] have one colour; None if that is
    impossible, or not found within `SEARCH` steps a node.

    Backtracking in the order of Brelaz: next is a node that the most colours are taken for.
    """
    nodes = len(clash)
    colour, taken = np.full(nodes, -1), np.zeros((nodes, colours), int)
    degree = clash.sum(1)
    trail: list[tuple[int, list[int]]] = []  # coloured nodes, and the colours left to try

    def paint(node: int, now: int) -> None:
        taken[clash[node], colour[node] if now < 0 else now] += -1 if now < 0 else 1
        colour[node] = now

    for _ in range(SEARCH * nodes):
        if len(trail) == nodes:
            return colour
        first = (taken > 0).sum(1) * nodes + degree
        node = int(np.where(colour < 0, first, -1).argmax())
        fresh = int(colour.max()) + 1  # one new colour is as good as another
        left = [one for one in np.flatnonzero(taken[node] == 0).tolist() if one <= fresh]
        while not left:
            if not trail:
                return None
            node, left = trail.pop()
            paint(node, -1)
        paint(node, left.pop(0))
        trail.append((node, left))
    return None


def read_weights(path: str) -> np.ndarray:
    """Read the weights [N, N] of a CSV file, a line a node.

    Raises UserError for a file that cannot be read, and weights that are not doubly stochastic.
    """
    key = "topology.path"
    try:
        text = read_text(path, MAX_BYTES)
        rows = [[float(cell) for cell in row] for row in csv.reader(text.splitlines()) if row]
        weights = np.array(rows, dtype=float)
    except (OSError, ValueError, csv.Error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(
            f"{key}: '{path}' cannot be read as a table of numbers ({reason}); a CSV file with a "
            "line a node would do"
        ) from None
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise UserError(f"{key}: '{path}' has {len(rows)} lines, and not as many numbers in each")
    sums = np.concatenate([weights.sum(0), weights.sum(1)])
    if not np.isfinite(sums).all() or (weights < 0).any() or np.abs(sums - 1).max() > TOLERANCE:
        raise UserError(
            f"{key}: the weights of '{path}' are not doubly stochastic; numbers of at least 0, of "
            "which every line and column sums to 1, would do"
        )
    return weights
