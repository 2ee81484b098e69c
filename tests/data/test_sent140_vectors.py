"""GloVe's vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data.sent140 import read_vectors

pytestmark = pytest.mark.exact


def test_vectors_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\nb 3 4\nä 5 6\na 7 8\n", encoding="utf-8")
    places, table = read_vectors(path, {"a", "ä", "c"}, 2)
    assert places == {"a": 1, "ä": 2}
    assert_array_equal(table, [[0, 0], [1, 2], [5, 6]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\nb 3\n", "line 2 has 1 numbers; must be 2"),
        (b"a 1 2 3\n", "line 1 has 3 numbers; must be 2"),
        (b"a 1 x\n", "not a file of GloVe vectors: could not convert"),
        (b"\xff\xfe 1 2\n", "not a file of GloVe vectors"),
    ],
)
def test_what_is_no_file_of_vectors(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(path, {"a"}, 2)
