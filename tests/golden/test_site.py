"""Ways into the site: cards of what there is to choose from, and a search that knows the words that
users come with.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))

from otafl_docs import formulas, pages


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return dict(pages.generated())


@pytest.mark.parametrize(
    ("said", "page", "anchor"),
    [
        ("learning rate", "algorithm/fedavg", "key-algorithm-fedavg-learning-rate"),
        ("federated averaging", "algorithm/fedavg", "entry-algorithm-fedavg"),
        ("AirComp", "transport", "entry-transport-over-the-air"),
    ],
)
def test_words_of_others_lead_to(
    said: str, page: str, anchor: str, generated: dict[str, str]
) -> None:
    """Search puts main entries of the index first, and they lead to what comes after them."""
    entry = re.compile(rf"\.\. index:: (?:.*, )?! {said}(?:, .*)?\n\s*\.\. _(.*):\n")
    found = {(path, place) for path, text in generated.items() for place in entry.findall(text)}
    assert found == {(f"{page}.rst", anchor)}


@pytest.mark.slow
def test_formulas_of_components_and_pages_can_be_drawn(generated: dict[str, str]) -> None:
    """The site draws formulas with matplotlib, which knows a part of LaTeX."""
    found = re.findall(r"\.\. math::\n\n((?:    .*\n)+)", "\n".join(generated.values()))
    for page in (Path(__file__).parents[2] / "docs").glob("*.md"):
        found += re.findall(
            r"^```\{?math\}?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        )
    for formula in found:
        assert "<svg" in formulas.picture(formula), formula
