"""Mistakes about type-based access: each makes the laws of it fail that are named, no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from support.mutations import Patch, failing, replaced, scaled

FAMILY = "transport type_based"

ERROR, ROUNDED, LATTICE, ROUNDING, USES = (
    "error",
    "rounded counts",
    "lattice",
    "rounding to levels",
    "channel uses and power",
)


def down(real: Any) -> Any:
    """Whole numbers below, for the nearest."""
    return lambda y, senders, how: y.floor() if how == "round" else real(y, senders, how)


def apart(real: Any) -> Any:
    """Each count by itself, whatever their sum."""
    return lambda y, total: y.round().clamp_min(0.0)


def always_up(real: Any) -> Any:
    return lambda part, count, draw: real(part, count, torch.full_like(part, 0.999))


def one_use(real: Any) -> Any:
    """The power of a pulse as if it were sent on every channel use of a real."""

    def pulses(self: Any, slot: Any, *rest: Any) -> Any:
        made = real(self, slot, *rest)
        return dataclasses.replace(made, power=slot.each * made.power)

    return pulses


TYPES = "otafl.uplink.type_based.type_based"
MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "noise of a complex sample": (
        {ERROR, ROUNDED, LATTICE},
        scaled("otafl.uplink.impairments.impairments:Impairments.noise", 2.0),
    ),
    "counts rounded down": ({ROUNDED}, replaced(f"{TYPES}.project", down)),
    "counts that need not add up to K": ({LATTICE}, replaced(f"{TYPES}.nearest_type", apart)),
    "values rounded up": ({ROUNDING}, replaced(f"{TYPES}._levels", always_up)),
    "a pulse at the power of a use": (
        {ERROR, ROUNDED, LATTICE, USES},
        replaced(f"{TYPES}:TypeBased._pulses", one_use),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
