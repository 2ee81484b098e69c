"""Mistakes about several servers: each makes the laws of it fail that are named, no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.mutations import Patch, failing, replaced, scaled

FAMILY = "topology"

INTERFERENCE, DISTANCE, GAINS, CONTRACTION = (
    "cells: interference",
    "cells: co-channel distance",
    "cell_free: gains",
    "graph: contraction",
)


def one_band(real: Any) -> Any:
    """The band of a site's number, whatever its place."""
    return lambda *given: dataclasses.replace(
        real(*given), band=np.arange(given[0]) % given[3] if given[3] > 1 else real(*given).band
    )


def amplitudes(real: Any) -> Any:
    """The gain of points as that of amplitudes."""

    def init(self: Any, own: Any, each: Any, gain: Any, *rest: Any) -> None:
        real(self, own, each, None if gain is None else gain.sqrt(), *rest)

    return init


def lazy(real: Any) -> Any:
    """Weights of degrees that leave a node itself out."""
    return lambda edges: 0.5 * np.eye(len(edges)) + 0.5 * edges / edges.sum(1).max() ** 0.5


TOPOLOGY = "otafl.topology"
POINTS = f"{TOPOLOGY}.cell_free:AccessPoints"
MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "all of a complex signal's power in one real": (
        {INTERFERENCE},
        scaled("otafl.transport.neighbours:Neighbours.signal", 2**0.5),
    ),
    "parts of the band in turn": ({DISTANCE}, replaced(f"{TOPOLOGY}.hexagons._laid_out", one_band)),
    "gains of amplitudes": ({GAINS}, replaced(f"{POINTS}.__init__", amplitudes)),
    "weights that do not sum to one": (
        {CONTRACTION},
        replaced(f"{TOPOLOGY}.mixing.metropolis", lazy),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY} {law}" for law in laws}
