"""Laws of several servers: their interference, and their agreement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.topology import mixing
from otafl.validation.bench import CONFORMANCE, Bench
from otafl.validation.checks import (
    Check,
    check_at_most,
    check_exact,
    check_mean,
    state_law,
)

FRONTIER = "signals of all others"
CONSENSUS = "Xiao and Boyd 2004"
METROPOLIS = "Xiao, Boyd, Lall 2005; 1 / (1 + max(d_i, d_j))"

DEVICES = 4
REALS = 256

GRAPHS = ("{}", ("ring", "torus", "complete"))
NODES = 12
REACH = 0.4


def _interference(bench: Bench, channel: dict[str, Any], cross_gain_db: float) -> np.ndarray:
    """Return the interference of each of three servers over its law sum g |p|^2 m / 2.

    The result is [rounds, S C].
    """
    cells = {"name": "cells", "servers": 3, "cross_gain_db": cross_gain_db}
    points = {"channel": channel, "power": "full", "topology": cells}
    rig = bench.build_rig(DEVICES, 32, points)
    found = []
    for round in range(bench.scale_size(32)):
        saved = rig.send(rig.draw_symbols(REALS, round), round)[1].saved_tensors
        sent = (saved["p/0"][:, 0].abs().square() * saved["m/0"][:, 0]).sum(1).view(-1, 3)
        others = (sent.sum(1, keepdim=True) - sent).flatten()
        law = db_to_linear(cross_gain_db) * others / 2.0
        found.append((saved["neighbours/0"].sum(1) / REALS / law).cpu().numpy())
    return np.stack(found)


@state_law(
    "topology cells: interference", f"{FRONTIER}; sum g |p|^2 m / 2", "{:g} dB", (-10.0, 0.0)
)
def _interference_level(bench: Bench, cross_gain_db: float) -> Iterator[Check]:
    """Compare the interference on two channels.

    A trial's three servers receive some of the same devices, over channels of their own. Only their
    mean therefore counts as one number.
    """
    for name in ("rayleigh", "rician"):
        found = _interference(bench, {"name": name, "snr_db": 10.0}, cross_gain_db)
        yield check_mean(1.0, found.reshape(len(found), -1, 3).mean(2), name)


@state_law("topology graph: contraction", f"{CONSENSUS}; at most the squared modulus", *GRAPHS)
def _contracts(bench: Bench, shape: str) -> Iterator[Check]:
    """Average normal models with the graph's weights, and compare their distance from the mean.

    The mean does not change.
    """
    weights = mixing.metropolis_weights(getattr(mixing, f"{shape}_edges")(NODES))
    streams = Streams([0], [0], bench.torch_device, torch.float64)
    models = streams.draw_normal(CONFORMANCE, 1, (NODES, REALS))[0].cpu().numpy()
    after = weights @ models
    spread = [np.square(x - x.mean(0)).sum() for x in (models, after)]
    modulus = np.sort(np.abs(np.linalg.eigvals(weights)))[-2]
    rounding = 1e-24  # for the complete graph, whose modulus is 0
    yield check_at_most(float(modulus**2) + rounding, float(spread[1] / spread[0]), 1e-9)
    yield check_exact(0.0, float(np.abs(after.mean(0) - models.mean(0)).max()), 1e-12, "mean")


@state_law("topology graph: Metropolis weights", METROPOLIS)
def _metropolis(bench: Bench) -> Iterator[Check]:
    """Count the neighbours of each node in random graphs, and those of its neighbours."""
    places = np.random.default_rng(0).random((bench.scale_size(20), NODES, 2))
    for number, each in enumerate(places):
        edges = np.linalg.norm(each[:, None] - each, axis=2) < REACH
        near = [[j for j in range(NODES) if edges[i, j] and j != i] for i in range(NODES)]
        law = np.zeros((NODES, NODES))
        for i, others in enumerate(near):
            for j in others:
                law[i, j] = 1.0 / (1.0 + max(len(others), len(near[j])))
            law[i, i] = 1.0 - law[i].sum()
        weights = mixing.metropolis_weights(mixing.geometric_edges(each, REACH))
        yield check_exact(0.0, float(np.abs(weights - law).max()), 1e-12, f"graph {number}")
