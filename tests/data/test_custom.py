"""A data set of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
def shapes(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 3)), np.zeros(4), 2)
def lengths(): return DataSet(np.zeros((4, 2)), np.zeros(3), np.zeros((4, 2)), np.zeros(4), 2)
def labels(): return DataSet(np.zeros((4, 2)), np.full(4, 2), np.zeros((4, 2)), np.zeros(4), 2)
def halves(): return DataSet(np.zeros((4, 2)), np.full(4, 0.5), np.zeros((4, 2)), np.zeros(4), 2)
def empty(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((0, 2)), np.zeros(0), 2)
def large_test(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 2)), np.zeros(4), 2)
def own():
    x, y = np.zeros((4, 2)), np.zeros(4)
    return DataSet(x, y, x, y, 2, x[:1], y[:1])
number = 3
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
        ({"name": "my_otafl_missing:f"}, "No module named 'my_otafl_missing'"),
        ({"name": "my_otafl_data:circles"}, "'circles' does not exist in module"),
        ({"name": "my_otafl_data:number"}, "'number' is not callable"),
        ({"name": "my_otafl_data:squares", "sise": 2}, "unexpected keyword argument 'sise'"),
        ({"name": "my_otafl_data:nothing"}, "returned dict; expected otafl.data.DataSet"),
        ({"name": "my_otafl_data:shapes"}, r"test shapes disagree: x is \[4, 3\].*\[n, 2\]"),
        ({"name": "my_otafl_data:lengths"}, r"train shapes disagree.*y is \[3\]"),
        ({"name": "my_otafl_data:labels"}, r"labels must be in 0..1 for 2 classes.*2..2"),
        ({"name": "my_otafl_data:halves"}, "labels must be whole numbers"),
        ({"name": "my_otafl_data:empty"}, "no test samples"),
        ({"name": "my_otafl_data:large_test", "test": "train_tail"}, "data.test: train_tail"),
        ({"name": "my_otafl_data:own", "validation": 0.5}, "1 validation samples of its own"),
    ],
)
def test_custom_refuses(keys: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(CustomData.model_validate(keys))


def test_owners_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.zeros((4, 2)), np.zeros(4)

    def make() -> DataSet:
        return DataSet(x, y, x, y, 2, owner=np.arange(3))

    monkeypatch.setattr(CustomData, "call", lambda _: make())
    with pytest.raises(
        UserError, match=r"owner has shape \[3\]; expected one user for each of the 4"
    ):
        load(CustomData(name="a:b"))


def test_a_name_is_module_and_callable() -> None:
    with pytest.raises(ValueError, match="pattern"):
        CustomData(name="a:b:c")


def test_the_functions_keys_may_have_any_name() -> None:
    """Also those of what the program knows of a data set."""
    keys = {"classes": 5, "files": "x", "input_shape": [2], "read": 3}
    source = CustomData.model_validate({"name": "a:b", **keys})
    assert source.options == keys
    assert source.classes is None
    assert source.files is None
    assert source.input_shape is None
