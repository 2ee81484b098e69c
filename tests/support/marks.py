"""Which cases of a parametrised test are in the fast suite."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

IN_CHECKOUT = pytest.mark.skipif(
    not (Path(__file__).parents[2] / "studies" / "fedrlr" / "data").is_dir(),
    reason="an sdist has no results of studies",
)


def first_is_fast(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Mark all cases but the first `fast` as slow; a tuple is one case of several arguments."""
    return [
        case
        if place < fast
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
