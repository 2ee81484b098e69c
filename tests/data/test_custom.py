"""A data set of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data import DataSet, load
from otafl.data.custom import CustomData

pytestmark = pytest.mark.exact

CUSTOM = """
import numpy as np
from otafl.data import DataSet

def squares(size=3, offset=0.0):
    x = np.arange(8 * size * size, dtype=np.float64).reshape(8, size, size) + offset
    y = np.arange(8, dtype=np.int32) % 2
    return DataSet(x, y, x[:5], y[:5], classes=2)

def nothing(): return {}
def large_test(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 2)), np.zeros(4), 2)
def own():
    x, y = np.zeros((4, 2)), np.zeros(4)
    return DataSet(x, y, x, y, 2, x[:1], y[:1])
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_otafl_data.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_otafl_data", raising=False)


@pytest.mark.usefixtures("custom")
def test_a_data_set_of_the_users_own() -> None:
    source = CustomData.model_validate(
        {"name": "my_otafl_data:squares", "size": 2, "offset": 1.0, "validation": 0.25}
    )
    data = load(source)
    assert isinstance(data, DataSet)
    assert data.input_shape == (2, 2)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.float32, np.int64)
    assert_array_equal(data.x_validation[0], [[25, 26], [27, 28]])
    assert_array_equal(data.y_validation, [0, 1])


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "my_otafl_data:circles"}, "'circles' does not exist in module"),
        ({"name": "my_otafl_data:squares", "sise": 2}, "data.sise: unknown key"),
        ({"name": "my_otafl_data:nothing"}, "returned dict; expected otafl.data.DataSet"),
        ({"name": "my_otafl_data:large_test", "test": "train_tail"}, "data.test: train_tail"),
        ({"name": "my_otafl_data:own", "validation": 0.5}, "1 validation samples of its own"),
    ],
)
def test_custom_refuses(keys: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(CustomData.model_validate(keys))


X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
VALUES, TOKENS = X[:, :1] / 2, np.arange(12).reshape(6, 2) % 5


def make(**arrays: Any) -> DataSet:
    """Return a data set whose training samples are its test samples, with some other arrays."""
    given = {"x_train": X, "y_train": Y, "classes": 3} | arrays
    tests = {"x_test": given["x_train"], "y_test": given["y_train"]}
    return DataSet(**(tests | given))


def put(array: Any, place: Any, value: Any) -> Any:
    """Return a copy with another value."""
    changed = np.array(array)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make(x_test=put(X, (4, 1), np.nan)), r"1 of 12 test values is not .* sample 4, feature 1"),
        (make(x_train=X + 1j), r"train samples: got the type complex128; .* imaginary parts"),
        (make(x_train=pd.DataFrame({"a": X[:, 0], "b": "c"})), r"train samples: got the type obj"),
        (make(x_train=np.ma.array(X, mask=X > 10)), r"1 of 12 values is masked, .* sample 5"),
        (make(x_train=np.full((6, 2), 2**24 + 1)), r"12 of 12 train values are too large a whole"),
        (make(x_train=X[:, 0]), r"samples are single numbers, x is \[6\]; .* x\[:, None\]"),
        (
            make(x_test=X[:, 0]),
            r"test shapes disagree: x is \[6\] and y is \[6\]; expected x \[n, 2",
        ),
        (make(x_train=X[:0], y_train=Y[:0]), r"has no train samples: x is \[0, 2\], y \[0\]"),
        (make(y_train=np.array(list("abcabc"))), r"train labels: got the type str.* np.unique\("),
        (make(y_test=put(Y, 3, -1)), r"1 of 6 test labels is outside .* 0\.\.2, .* 3 \(got -1\)"),
        (make(y_train=Y[:, None]), r"whole numbers \[6, 1\]; expected classes \[n\], .* y\[:, 0\]"),
        (make(y_train=Y[:, None] * 1.0), r"real numbers \[6, 1\], and classes is 3; expected"),
        (make(classes=2.5), r"classes is 2.5; expected their number"),
        (make(y_train=put(VALUES, 1, np.nan), classes=0), r"1 of 6 train labels is .* output 0"),
        (
            make(x_train=TOKENS, y_train=TOKENS, classes=4),
            r"2 of 12 train tokens .* sample 2, .* 0",
        ),
        (make(x_train=X / 2, y_train=TOKENS, classes=12), r"6 of 12 train tokens .* \(got 0.5\)"),
        (make(owner=np.arange(3)), r"owner has shape \[3\]; expected one user for each of the 6"),
        (make(time_test=put(X[:, 0], 2, np.nan)), r"1 of 6 time_test is not finite, .* sample 2"),
    ],
)
def test_bad_arrays_are_refused(data: DataSet, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CustomData, "call", lambda _: data)
    with pytest.raises(UserError, match=f"data.name: 'a:b'.*{said}"):
        load(CustomData(name="a:b"))
