"""Mistakes about privacy: each makes the laws fail that are named, and no other of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.mutations import Patch, constant, failing, made, replaced, scaled

FAMILY = "privacy"
MODULE = "otafl.privacy.mechanism"

CURVE, SENT, ATTACKER = "delta of mu-GDP", "mu of what is sent", "an attacker is on the curve"
NORMS = "clipped norms"
HITS, BOUND = "hits at 5 % false alarms", "a bound is kept"
SERVERS = "all servers count"


def one_way(privacy: Any) -> None:
    privacy._distance = 1.0


def first_antenna(real: Any) -> Any:
    def spend(self: Any, on_air: Any) -> None:
        slot = replace(on_air.symbols.slot, h=on_air.symbols.slot.h[:, :, :1])
        real(self, replace(on_air, symbols=replace(on_air.symbols, slot=slot)))

    return spend


def forgetful(real: Any) -> Any:
    def spend(self: Any, on_air: Any) -> None:
        self.spent.zero_()
        real(self, on_air)

    return spend


def mean_fade(real: Any) -> Any:
    """The bound looks at the mean of the antennas."""

    def limit(self: Any, slot: Any, *args: Any) -> Any:
        h = slot.h * slot.h.shape[2] ** -0.5
        return replace(slot, budget=real(self, replace(slot, h=h), *args).budget)

    return limit


def entry_by_entry(real: Any) -> Any:
    """Reals clipped one by one, in the place of their norm."""
    return lambda self, sent: replace(sent, x=sent.x.clamp(-self._clip, self._clip))


def always_to_the_norm(real: Any) -> Any:
    """Payloads that are smaller than C scaled up to it."""

    def clipped(self: Any, sent: Any) -> Any:
        norm = sent.x.norm(dim=1).clamp_min(1e-9)
        return replace(sent, x=sent.x * (self._clip / norm)[:, None])

    return clipped


def own_server(real: Any) -> Any:
    return lambda self, slot: slot.h.abs().square().sum(2)


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "entries clipped one by one": ({NORMS}, replaced(f"{MODULE}:Privacy.clip", entry_by_entry)),
    "small payloads scaled up": (
        {NORMS},
        replaced(f"{MODULE}:Privacy.clip", always_to_the_norm),
    ),
    "a device's data moves it one way": (
        {SENT, ATTACKER, HITS, SERVERS},
        made(f"{MODULE}:Privacy", one_way),
    ),
    "the noise of a complex symbol": (
        {SENT, ATTACKER, HITS, SERVERS},
        constant(f"{MODULE}.NOISE_VARIANCE", 1.0),
    ),
    "one antenna listens": ({SENT, BOUND}, replaced(f"{MODULE}:Privacy.spend", first_antenna)),
    "one round counts": (
        {SENT, ATTACKER, HITS, BOUND, SERVERS},
        replaced(f"{MODULE}:Privacy.spend", forgetful),
    ),
    "a bound of the mean antenna": (
        {BOUND, SERVERS},
        replaced(f"{MODULE}:Privacy.limit", mean_fade),
    ),
    "its own server listens": ({SERVERS}, replaced(f"{MODULE}:Privacy._power_gains", own_server)),
    "epsilon for mu": ({CURVE}, scaled("otafl.laws.privacy.delta_of", 1.01)),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
