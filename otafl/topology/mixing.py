"""Graphs of neighbours, their averaging weights, and the slots in which devices receive.

References
----------
Xiao, Boyd, Lall 2005, "A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus",
IPSN: Metropolis weights.
Xiao, Boyd 2004, "Fast linear iterations for distributed averaging", Systems & Control Letters 53:
convergence factors.
"""

from __future__ import annotations

import math

import numpy as np

from otafl.core.errors import UserError
from otafl.core.files import MIB, read_text

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
    return _fill_diagonal(edges / (1.0 + np.maximum(degree[:, None], degree)))


def _fill_diagonal(weights: np.ndarray) -> np.ndarray:
    """Return the weights with a diagonal that makes the rows sum to one."""
    return weights + np.diag(1.0 - weights.sum(1))


def compute_second_modulus(weights: np.ndarray) -> float:
    """Compute the largest factor by which an exchange reduces the nodes' distance from their mean.

    It is the largest singular value of W - 1 1^T / N, which for symmetric W is the second largest
    modulus of its eigenvalues.
    """
    return float(np.linalg.norm(weights - 1.0 / len(weights), 2))


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
