"""Ways into the site: cards of what there is to choose from, and a search that knows the words that
users come with.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from otafl.core.registry import TABLES
from otafl.core.suggestions import SYNONYMS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))

from otafl_docs import figures, formulas, pages, rst, words


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return dict(pages.generated())


def test_cards_of_choices(generated: dict[str, str]) -> None:
    """Each table has one, with a figure of its own that is drawn inside its frame."""
    cards = generated["choices.rst"].split(".. grid-item-card:: ")[1:]
    drawn = set()
    for (table, about), card in zip(TABLES.items(), cards, strict=True):
        assert card.startswith(f"{about.title}\n")
        assert f":link: {pages.entries.place(table)[1]}\n" in card
        (svg,) = re.findall(r"<svg.*</svg>", card)
        drawn.add(svg)
        assert svg == figures.figure(table)
        points = " ".join(one.get("points", "") for one in ElementTree.fromstring(svg)).split()
        for x, y in (map(float, point.split(",")) for point in points):
            assert 0 <= x <= 96
            assert 0 <= y <= 48
    assert len(drawn) == len(TABLES)


@pytest.mark.parametrize(
    ("said", "page", "anchor"),
    [
        ("learning rate", "algorithm/fedavg", "key-algorithm-fedavg-learning-rate"),
        ("lr", "algorithm/fedavg", "key-algorithm-fedavg-learning-rate"),
        ("federated averaging", "algorithm/fedavg", "entry-algorithm-fedavg"),
        ("epochs", "scenario", "key-training-local-epochs"),
        ("batch size", "scenario", "key-training-batch-size"),
        ("clients", "scenario", "key-devices-count"),
        ("path loss", "channel/rayleigh", "key-channel-rayleigh-path-loss-db"),
        ("non-iid", "partition", "table-partition"),
        ("random seed", "scenario", "key-seed"),
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


def test_every_other_word_is_said_somewhere(generated: dict[str, str]) -> None:
    things = {*SYNONYMS.values(), *words.MORE}
    lines = re.findall(r":kind:`Other words: (.*)`", "\n".join(generated.values()))
    for thing in things:
        assert ", ".join(words.others(thing)) in lines, thing


def test_search_finds_names_by_their_parts() -> None:
    pytest.importorskip("sphinx")
    from otafl_docs.search import Parts

    assert Parts({}).split("a `learning_rate`") == ["a", "learning_rate", "learning", "rate"]


@pytest.mark.parametrize("above", ["A device descends:\n\n", "A device descends:\n", ""])
def test_formulas_in_latex_stay_formulas(above: str) -> None:
    text = f"Notes\n-----\n{above}.. math::\n\n    w \\leftarrow w - \\eta g\n\nThen."
    assert "\n\n.. math::\n\n    w \\leftarrow w - \\eta g\n\nThen." in rst.prose(text)


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
