"""What was meant: in other letters, by what other programs say, by its spelling."""

from __future__ import annotations

import pytest

from otafl.core import registry
from otafl.core.suggestions import ALIKE, SYNONYMS, find_closest
from otafl.scenario import Scenario
from otafl.scenario.keys import iterate_fields

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("GBMA", ["gbma", "ci"], "gbma"),
        ("TDL_A", ["tdl-a", "tdl-b"], "tdl-a"),
        ("learning-rate", ["learning_rate", "rate"], "learning_rate"),
        ("lr", ["rounds", "learning_rate"], "learning_rate"),
        ("epochs", ["rounds", "local_steps", "local_epochs"], "local_epochs"),
        ("gbam", ["gbma", "ci"], "gbma"),
        ("gpu", ["auto", "cpu", "cuda"], "cuda"),
        ("fsk_mv", ["fsk_majority_vote", "reed"], "fsk_majority_vote"),
        ("noise_db", ["noise_figure_db", "snr_db"], "snr_db"),
        ("file", ["filter", "path"], "path"),
        ("count", ["round", "device_count"], "device_count"),
        ("round", ["rounds", "round_interval_s"], "rounds"),
        ("rate", ["learning_rate", "code_rate", "rates"], "rates"),
        ("lr", ["rounds"], None),
        ("", ["rounds"], None),
    ],
)
def test_closest(word: str, known: list[str], expected: str | None) -> None:
    assert find_closest(word, known) == expected


def test_synonyms_are_of_keys_that_there_are() -> None:
    assert set(SYNONYMS.values()) <= {key for key, _ in iterate_fields(Scenario)}


def test_alike_words_are_of_components_and_keys_that_there_are() -> None:
    keys = {key.rpartition(".")[2] for key, _ in iterate_fields(Scenario)}
    names = set().union(*map(registry.list_names, registry.TABLES))
    assert {word for words in ALIKE.values() for word in words} <= keys | names | {"path", "cuda"}
