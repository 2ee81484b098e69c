"""Mistakes about several servers: each makes the laws of it fail that are named, no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.mutations import Patch, failing, replaced, scaled

from otafl.topology import hexagons, mixing

FAMILY = "topology"

INTERFERENCE, DISTANCE, GAINS, CONTRACTION, METROPOLIS = (
    "cells: interference",
    "cells: co-channel distance",
    "cell_free: gains",
    "graph: contraction",
    "graph: Metropolis weights",
)
TIERS, OF_TIERS, BY_MAP, PART = (
    "cells: co-channel tiers",
    "cells: interference of two tiers",
    "cells: gains by the map",
    "cells: part of the band",
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


def nearest(real: Any) -> Any:
    """Each other co-channel site at its nearest place only."""
    return lambda site, others, near, tiers: real(site, others, near, [])


def turned_round(real: Any) -> Any:
    """Ways from a server to another for those back."""
    return lambda rows, shift_m, **rest: real(rows=rows, shift_m=-shift_m, **rest)


def whole_noise(real: Any) -> Any:
    """A part of the band with the noise of the whole."""

    def of_server(self: Any, scenario: Any) -> Any:
        made, snr_db = real(self, scenario), scenario.channel.snr_db
        channel = made.channel.model_copy(update={"snr_db": snr_db})
        return made.model_copy(update={"channel": channel})

    return of_server


TOPOLOGY = "otafl.topology"
POINTS = f"{TOPOLOGY}.cell_free:AccessPoints"
MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "all of a complex signal's power in one real": (
        {INTERFERENCE, OF_TIERS},
        scaled("otafl.uplink.neighbours:Neighbours.signal", 2**0.5),
    ),
    "parts of the band in turn": ({DISTANCE}, replaced(f"{TOPOLOGY}.hexagons._laid_out", one_band)),
    "gains of amplitudes": ({GAINS}, replaced(f"{POINTS}.__init__", amplitudes)),
    "weights that do not sum to one": (
        {CONTRACTION, METROPOLIS},
        replaced(f"{TOPOLOGY}.mixing.metropolis", lazy),
    ),
    "weights of the largest degree": (
        {METROPOLIS},
        replaced(f"{TOPOLOGY}.mixing.metropolis", lambda real: mixing.max_degree),
    ),
    "a place of each other server": (
        {TIERS, OF_TIERS},
        replaced(f"{TOPOLOGY}.hexagons._list_images", nearest),
    ),
    "devices on the other side of a server": (
        {BY_MAP},
        replaced(f"{TOPOLOGY}.cells.Elsewhere", turned_round),
    ),
    "the noise of the whole band": (
        {PART},
        replaced(f"{TOPOLOGY}.cells:CellsSettings.of_server", whole_noise),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    hexagons.hexagons.cache_clear()
    failed = failing(FAMILY, patch, monkeypatch)
    hexagons.hexagons.cache_clear()
    assert failed == {f"{FAMILY} {law}" for law in laws}
