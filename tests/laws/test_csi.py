"""Mistakes about pilots: each makes the laws fail that are named, and no
other of theirs."""

from __future__ import annotations

from typing import Any

import pytest
from support.mutations import Patch, failing, made, replaced

FAMILY = "csi pilots"

USES = "channel uses"
NEAR, MMSE, FAR = "error of least squares", "error of MMSE", "error over a path loss"


def without_gain(real: Any) -> Any:
    return lambda self, gain: real(self, gain / gain)


def amplitude(real: Any) -> Any:
    return lambda self, gain: real(self, gain.sqrt())


def on_every_group(csi: Any) -> None:
    csi._symbols = csi.settings.length * 4


def half_the_pilots(real: Any) -> Any:
    return lambda self, gain: 2.0 * real(self, gain)


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "no path loss": ({FAR}, replaced("otafl.csi.pilots:Pilots.error_variance", without_gain)),
    "path loss of the amplitude": (
        {FAR},
        replaced("otafl.csi.pilots:Pilots.error_variance", amplitude),
    ),
    "pilots on every group": (
        {USES},
        made("otafl.csi.pilots:Pilots", on_every_group),
    ),
    "half the pilots": (
        {NEAR, MMSE, FAR},
        replaced("otafl.csi.pilots:Pilots.error_variance", half_the_pilots),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
