"""Averages over few states of a channel do, where a run is compared with another of itself."""

from __future__ import annotations

import pytest

from otafl.csi import long_term

FEW = 2048
"""With half as many, the mean gain of an outdated estimate comes out as zero, and runs as NaN."""


@pytest.fixture(autouse=True)
def _few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_term, "DRAWS", FEW)
