"""Numbers and letters as LaTeX takes them."""

from __future__ import annotations

import pytest
from golden.made_results import made

from otafl.analysis.rows import TableFormat, escape_latex
from otafl.analysis.tables import build_grid, build_text_table

pytestmark = pytest.mark.exact


def test_exponents_and_special_letters() -> None:
    ds = made({"power": ["gbma", "ci"]}, lambda *_: 3e-12, trials=2)
    text = build_text_table(build_grid(ds, "test_accuracy")).format(TableFormat.latex)
    assert r"$3 \times 10^{-12} \pm 0$" in text
    assert escape_latex("50 % of a_b & {c}") == r"50 \% of a\_b \& \{c\}"
    assert escape_latex("-10 dB") == "$-$10 dB"
    assert escape_latex("\\") == r"\textbackslash{}"
