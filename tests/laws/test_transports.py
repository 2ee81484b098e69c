"""Mistakes about over-the-air uplinks: each makes the laws fail that are named, and no
other of theirs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.mutations import Patch, failing, replaced

FAMILY = "transport over_the_air"

TOTAL, CELLS = "total energy", "coherence blocks"


def in_each(real: Any) -> Any:
    """The energy of the payload in each of its symbols."""

    def slot(delivery: Any, settings: Any, csi: Any) -> Any:
        made = real(delivery, settings, csi)
        if settings.snr_convention == "total_energy":
            return dataclasses.replace(made, budget=made.budget * made.symbols)
        return made

    return slot


def one_block_late(real: Any) -> Any:
    return lambda self, h, symbols: [stop + 1 for stop in real(self, h, symbols)]


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "total energy for each symbol": (
        {TOTAL},
        replaced("otafl.uplink.coherent.over_the_air.lay_out_reals", in_each),
    ),
    "a symbol too late": (
        {CELLS},
        replaced("otafl.core.contracts.link:ChannelState.stops", one_block_late),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
