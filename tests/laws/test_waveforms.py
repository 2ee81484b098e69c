"""Mistakes about OFDM samples: each makes the laws of them fail that are named, no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.mutations import Patch, failing, replaced, scaled, turned

FAMILY = "transport ofdm"

NO_IMPAIRMENT, DELAYS, CARRIER, PEAKS, AMPLIFIER, BEYOND, USES = (
    "no impairment",
    "delays within the prefix",
    "carrier offset",
    "peaks",
    "amplifier",
    "beyond the prefix",
    "channel uses and power",
)


def without_prefixes(real: Any) -> Any:
    """Time that stands still while a prefix is sent."""
    return lambda offset, first, stop, grid: real(
        offset, first, stop, dataclasses.replace(grid, prefix=0)
    )


def harder(real: Any) -> Any:
    return lambda samples, saturation, smoothness: real(samples, saturation, 2.0 * smoothness)


def one_more(real: Any) -> Any:
    """Prefixes that cover one sample more than they have."""
    return lambda late, prefix: real(late, prefix + 1)


def wider(real: Any) -> Any:
    """Sub-carriers of a group one after the other in the next group's place."""
    return lambda stops, groups, *rest: real(stops, 1, *rest)


SAMPLES = "otafl.uplink.coherent.ofdm_samples"
MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "prefixes take no time": (
        {CARRIER},
        replaced(f"{SAMPLES}.carrier_turns", without_prefixes),
    ),
    "delays twice as long": (
        {NO_IMPAIRMENT, DELAYS, BEYOND},
        scaled("otafl.uplink.coherent.arrivals.about_centre", 2.0),
    ),
    "groups on other sub-carriers": (
        {NO_IMPAIRMENT, BEYOND},
        replaced("otafl.uplink.coherent.ofdm.lay_out", wider),
    ),
    "amplitudes for powers": ({PEAKS}, turned(f"{SAMPLES}.peaks", lambda power: power.sqrt())),
    "a harder amplifier": ({AMPLIFIER}, replaced(f"{SAMPLES}.rapp", harder)),
    "one sample more in the prefix": (
        {BEYOND},
        replaced("otafl.uplink.coherent.arrivals.missing_samples", one_more),
    ),
    "a prefix that is for nothing": (
        {USES},
        replaced(
            "otafl.uplink.coherent.ofdm_grid:Grid.repeats", lambda real: property(lambda _: 1.0)
        ),
        "otafl.uplink.coherent.ofdm_grid:Grid.repeats",
        lambda real: property(lambda _: 1.0),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
