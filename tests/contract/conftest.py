"""Averages over few states of a channel do, where a run is compared with another of itself."""

from __future__ import annotations

import pytest

from otafl.channels import custom
from otafl.csi import long_term

FEW = 2048
"""With half as many, the mean gain of an outdated estimate comes out as zero, and runs as NaN."""


@pytest.fixture(autouse=True)
def _few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_term, "DRAWS", FEW)


@pytest.fixture
def fewest_states(monkeypatch: pytest.MonkeyPatch, _few_states: None) -> None:
    """Averages are over even fewer states, for known channels and tests that take any averages."""
    for module in (custom, long_term):
        monkeypatch.setattr(module, "DRAWS", 256)
