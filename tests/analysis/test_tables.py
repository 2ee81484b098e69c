"""Digits of a column that are aligned, and letters that LaTeX takes."""

from __future__ import annotations

import numpy as np
import pytest
from golden.made_results import made

from otafl.analysis.rows import escape_latex
from otafl.analysis.tables import align_decimals, build_grid, format_latex

pytestmark = pytest.mark.exact


def test_aligned_digits() -> None:
    """Those of the median deviation, for all; own ones where that cannot be."""
    rng = np.array([-1.0, 0.0, 1.0])
    column = np.stack([0.5 + 0.01 * rng, 0.25 + 0.1 * rng, 12.0 + 0.02 * rng, np.full(3, np.nan)])
    assert align_decimals(column) == [
        ("0.500", "0.010"),
        ("0.250", "0.100"),
        ("12.000", "0.020"),
        ("", ""),
    ]
    assert align_decimals(np.array([[3.0], [12.25]])) == [("3.00", ""), ("12.25", "")]
    tiny = align_decimals(np.stack([1e-9 * (2 + rng), 5e3 * (2 + rng)]))
    assert tiny[0] == ("2e-09", "1e-09")


def test_exponents_and_special_letters() -> None:
    ds = made({"power": ["gbma", "ci"]}, lambda *_: 3e-12, trials=2)
    text = format_latex(build_grid(ds, "test_accuracy"))
    assert r"$3 \times 10^{-12} \pm 0$" in text
    assert escape_latex("50 % of a_b & {c}") == r"50 \% of a\_b \& \{c\}"
    assert escape_latex("-10 dB") == "$-$10 dB"
    assert escape_latex("\\") == r"\textbackslash{}"
