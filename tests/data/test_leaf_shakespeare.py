"""Speakers are users, their texts are cut into sequences, and the last ones test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_sets import write_shakespeare

from otafl.core import checksums
from otafl.core.errors import UserError
from otafl.data.dataset import DataSet
from otafl.data.leaf import ALPHABET, Shakespeare
from otafl.data.loading import load
from otafl.scenario import load_scenario

KEYS = {"min_characters": 200, "seq_len": 10}


def read(root: Path, **keys: Any) -> DataSet:
    return load(Shakespeare(root=str(root), **(KEYS | keys)))


@pytest.mark.exact
def test_a_speaker_is_a_user_and_a_label_is_the_next_character(tmp_path: Path) -> None:
    texts = write_shakespeare(tmp_path / "shakespeare")
    data = read(tmp_path, test="official")
    assert data.labels == "tokens"
    assert data.classes == len(ALPHABET)
    wanted = [texts["First Witch"], texts["MACBETH"]]
    assert data.owner is not None
    assert set(data.owner) == {0, 1}
    for user, text in enumerate(wanted):
        number = (len(text) - 1) // 10
        kept = int(0.75 * number)
        tokens = np.array(
            [max(ALPHABET.find(one), 1 if one not in ALPHABET else 0) for one in text]
        )
        x = np.concatenate([data.x_train[data.owner == user], data.x_test[data.owner_test == user]])
        y = np.concatenate([data.y_train[data.owner == user], data.y_test[data.owner_test == user]])
        assert len(data.x_train[data.owner == user]) == kept
        assert x.ravel().tolist() == tokens[: 10 * number].tolist()
        assert y.ravel().tolist() == tokens[1 : 10 * number + 1].tolist()


@pytest.mark.exact
def test_characters_outside_of_the_alphabet_count_as_a_space(tmp_path: Path) -> None:
    write_shakespeare(tmp_path / "shakespeare")
    data = read(tmp_path, alphabet="\n etaoin")
    assert data.classes == 8
    assert data.x_train.max() < 8
    assert (data.x_train == 1).mean() > 0.4
    last = read(tmp_path, alphabet="\netaoin ")
    np.testing.assert_array_equal(last.x_train == 7, data.x_train == 1)


def test_an_alphabet_without_a_space_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="expected a space among the characters, got 'abc'"):
        load_scenario({"name": "x", "data": {"name": "shakespeare", "alphabet": "abc"}})


@pytest.mark.parametrize(
    ("text", "keys", "said"),
    [
        (None, {"min_characters": 10**6}, "none of the 4 speakers of .* more than"),
        (None, {"seq_len": 2000}, "too few for training and test"),
        ("It was a dark night.\nAnd so on.", {}, "expected 'NAME:' on a line before each speech"),
    ],
)
def test_another_text_is_refused_in_a_sentence(
    tmp_path: Path, text: str | None, keys: dict[str, Any], said: str
) -> None:
    write_shakespeare(tmp_path / "shakespeare")
    if text is not None:
        (tmp_path / "shakespeare" / "input.txt").write_text(text)
        checksums.write(tmp_path / "shakespeare" / "input.txt")
    with pytest.raises(UserError, match=said):
        read(tmp_path, **keys)
