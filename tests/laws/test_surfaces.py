"""Mistakes about reflecting surfaces, each of which makes the laws fail that are named, and no
other of surfaces."""

from __future__ import annotations

from typing import Any

import pytest
from support.mutations import Patch, constant, failing, made, replaced, turned

POWER, APART = "random: mean power", "random: no phase of its own"
PHASE, SUM_PHASE = "align_weakest: phase", "align_sum: phase"
AMPLITUDE, SQUARE = "aligned: amplitude", "align_weakest: power grows as M^2"
ERRORS = "align_weakest: phase errors"


def share_for_its_root(surface: Any) -> None:
    surface._unblocked = 1.0 - surface._settings.blocked


def correlated_elements(real: Any) -> Any:
    def scattering(channel: Any, antennas: Any = None, *purpose: Any) -> Any:
        made = real(channel, antennas, *purpose)
        made._neighbours = channel.settings.antenna_correlation
        return made

    return scattering


def strongest(direct: Any, to_surface: Any, gain: Any) -> Any:
    index = (direct.abs().square().sum(2) * gain[..., None]).argmax(1)[:, None, None]
    return direct.take_along_dim(index, 1)[:, 0], to_surface.take_along_dim(index, 1)[:, 0]


def a_phase_for_all(real: Any) -> Any:
    """Elements that all turn by the phase that the first one needs."""

    def aligned(*args: Any) -> Any:
        phasors = real(*args)
        return phasors[:, :1].expand_as(phasors)

    return aligned


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "reflected power as an amplitude": (
        {POWER, AMPLITUDE, SQUARE, ERRORS},
        constant("otafl.channels.ris.db_to_linear", lambda db: 10.0 ** (db / 20.0)),
    ),
    "power of both quadratures in each": (
        {POWER, AMPLITUDE, SQUARE, ERRORS},
        constant("otafl.channels.ris.db_to_linear", lambda db: 2.0 * 10.0 ** (db / 10.0)),
    ),
    "blocked share of the amplitude": (
        {POWER, APART, ERRORS},
        made("otafl.channels.ris:Reflected", share_for_its_root),
    ),
    "phases of the wrong sign": (
        {PHASE, SUM_PHASE, AMPLITUDE, SQUARE, ERRORS},
        turned("otafl.channels.ris.aligned", lambda phasors: phasors.conj()),
    ),
    "one phase for all elements": (
        {PHASE, SUM_PHASE, AMPLITUDE, SQUARE, ERRORS},
        replaced("otafl.channels.ris.aligned", a_phase_for_all),
    ),
    "half the phases": (
        {PHASE, SUM_PHASE, AMPLITUDE, SQUARE, ERRORS},
        turned("otafl.channels.ris.aligned", lambda phasors: phasors**0.5),
    ),
    "elements correlated as antennas": (
        {"random: elements apart"},
        replaced("otafl.channels.scattering.scattering", correlated_elements),
    ),
    "the strongest device": (
        {PHASE},
        constant("otafl.channels.ris.weakest", strongest),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    assert failing("surface", patch, monkeypatch) == {f"surface {law}" for law in laws}
