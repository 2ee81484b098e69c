"""FEMNIST from small files in TensorFlow Federated's SQLite format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.small_sets import (
    WRITERS,
    encode_example,
    encode_field,
    list_expected_pixels,
    make_all_writers,
    make_image,
    take_first_pixels,
    write_hosted,
)

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.femnist import Femnist

pytestmark = pytest.mark.exact


def test_the_hosted_file(tmp_path: Path) -> None:
    write_hosted(tmp_path / "femnist" / "emnist_all.sqlite", make_all_writers())
    data = load(Femnist(root=str(tmp_path), fraction=1.0))
    assert_array_equal(data.owner, [0] * 4 + [1] * 9 + [2] * 2)
    names = sorted(WRITERS)
    for part, x in enumerate((data.x_train, data.x_test)):
        assert take_first_pixels(x) == list_expected_pixels(part, names)
    assert_array_equal(data.y_test, [60, 60, 59, 58, 60, 59])
    assert_array_equal(data.x_train[0], np.array(make_image(0), np.float32))
    few = load(Femnist(root=str(tmp_path)))
    assert few.owner is not None
    assert set(few.owner) == {0}  # a twentieth: one writer


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\x0a", "is not a tf.train.Example"),
        (encode_example(make_image(0), 1)[:-1], "is not a tf.train.Example"),
        (
            encode_field(1, encode_field(1, encode_field(1, b"pixels") + encode_field(2, b""))),
            "is not a tf.train.Example",
        ),
        (b"\x0b\x01", "is not a tf.train.Example"),
        (encode_example(make_image(0), 1) + b"\x12\x40cut off", "is not a tf.train.Example"),
        (b"\xff" * 12, "is not a tf.train.Example"),
        (encode_example(make_image(0)[:9], 1), "has 9 pixels and 1 labels; must be 784 and 1"),
        (
            encode_example(make_image(0), -1),
            r"1 of 1 train labels is .* 0\.\.61, .*-1",
        ),
        ("text", "is not a tf.train.Example"),
    ],
)
def test_spoilt_samples(tmp_path: Path, message: Any, error: str) -> None:
    good = [encode_example(make_image(0), 1)]
    samples = {("all_train", "a"): [message], ("all_test", "a"): good}
    write_hosted(tmp_path / "femnist" / "emnist_all.sqlite", samples)
    with pytest.raises(UserError, match=error):
        load(Femnist(root=str(tmp_path)))


def test_what_is_no_hosted_file(tmp_path: Path) -> None:
    path = tmp_path / "femnist" / "emnist_all.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(UserError, match="not a data set of TensorFlow Federated"):
        load(Femnist(root=str(tmp_path)))
    path.unlink()
    write_hosted(path, {("all_train", "a"): [encode_example(make_image(0), 1)]})
    with pytest.raises(UserError, match="no client has samples in all_train and all_test"):
        load(Femnist(root=str(tmp_path)))
    with pytest.raises(UserError, match=r"emnist_all.sqlite of femnist .*otafl data get femnist"):
        load(Femnist(root=str(tmp_path / "elsewhere")))
