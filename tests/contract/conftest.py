"""Averages over few states of a channel do, where a run is compared with another of itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otafl.csi import long_term

FEW = 512


@pytest.fixture(autouse=True, scope="package")
def _few_states() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_term, "DRAWS", FEW)
        yield
