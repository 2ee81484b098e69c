"""Mistakes about the clock's energy: each makes the laws of it fail that are named, no other."""

from __future__ import annotations

from typing import Any

import pytest
from support.mutations import Patch, failing, replaced, turned

BALANCE, BY_CAUSE = "energy balance", "joules by cause"


def weak(real: Any) -> Any:
    """A battery that gives half of what is drawn."""
    return lambda self, now_s, draws: real(self, now_s, [(at_s, w / 2) for at_s, w in draws])


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "waiting is free": (
        {BALANCE, BY_CAUSE},
        turned("otafl.clock.power:Power._costs", lambda costs: (*costs[:2], 0.0)),
    ),
    "a battery gives half": ({BALANCE}, replaced("otafl.devices.battery:Battery.plan", weak)),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    assert failing("clock: ", patch, monkeypatch) == {f"clock: {law}" for law in laws}
