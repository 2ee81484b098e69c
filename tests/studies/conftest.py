"""Scripts of studies set the style of figures for their program."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest


@pytest.fixture(autouse=True)
def _keep_style() -> Iterator[None]:
    """Set back the style of figures after each test, for the tests that follow."""
    with matplotlib.rc_context():
        yield
