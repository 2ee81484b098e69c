"""Samples of the server are samples of no device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.dataset import DataSet
from otafl.data.digits import Digits
from otafl.data.server_samples import ServerDataSettings, withhold
from otafl.scenario import ScenarioError, load_scenario

pytestmark = pytest.mark.exact


def rows(x: np.ndarray) -> set[bytes]:
    return {one.tobytes() for one in x}


@pytest.mark.parametrize("keys", [{"fraction": 0.3}, {"classes": (1, 4), "fraction": 0.5}])
def test_parts_share_no_sample(keys: dict[str, Any]) -> None:
    official, data = load(Digits()), load(Digits(server=keys))
    assert data.x_server is not None
    assert data.y_server is not None
    both = np.concatenate([data.x_train, data.x_server])
    order = [np.lexsort(x.T) for x in (both, official.x_train)]
    assert_array_equal(both[order[0]], official.x_train[order[1]])
    labels = np.concatenate([data.y_train, data.y_server])
    assert_array_equal(labels[order[0]], official.y_train[order[1]])
    assert_array_equal(data.y_test, official.y_test)
    chosen = np.isin(official.y_train, keys.get("classes", range(10)))
    assert len(data.y_server) == round(keys["fraction"] * chosen.sum())
    assert set(data.y_server) == set(keys.get("classes", range(10)))


def test_whole_classes_leave_the_test_too() -> None:
    official, data = load(Digits()), load(Digits(server={"classes": [0, 1, 2]}, validation=0.2))
    assert set(data.y_server) == {0, 1, 2}
    for labels in (data.y_train, data.y_test, data.y_validation):
        assert set(labels) == set(range(3, 10))
    assert len(data.y_test) == (official.y_test > 2).sum()
    left = int((official.y_train > 2).sum())
    assert len(data.y_validation) == round(0.2 * left)
    assert data.classes == 10


def test_whole_users() -> None:
    """Two of four users, with their test samples and times."""
    owner, owner_test = np.array([0, 0, 1, 2, 2, 3]), np.array([0, 1, 2, 3])
    data = DataSet(
        *(np.arange(6.0)[:, None].astype(np.float32), np.zeros(6, np.int64)),
        *(np.arange(4.0)[:, None].astype(np.float32), np.zeros(4, np.int64)),
        classes=1,
        owner=owner,
        owner_test=owner_test,
        time=np.arange(6.0),
        time_test=np.arange(4.0),
    )
    found = withhold(ServerDataSettings(fraction=0.5, by="users"), data)
    assert found.owner is not None
    assert found.owner_test is not None
    assert found.time is not None
    kept = set(found.owner)
    assert len(kept) == 2
    assert set(found.owner_test) == kept
    assert_array_equal(found.x_train[:, 0], np.flatnonzero(np.isin(owner, list(kept))))
    assert_array_equal(found.x_server[:, 0], np.flatnonzero(~np.isin(owner, list(kept))))
    assert_array_equal(found.time, found.x_train[:, 0])
    assert_array_equal(found.time_test, found.x_test[:, 0])


@pytest.mark.parametrize(
    ("name", "server", "text"),
    [
        ("digits", {}, "fraction: got 1, which leaves devices nothing"),
        ("digits", {"classes": [1], "by": "users"}, "users cannot be combined with classes"),
        ("digits", {"fraction": 0.5, "by": "users"}, "data 'digits' has no users; use by: samp"),
        ("shakespeare", {"classes": [1]}, "the labels of the data set are no classes"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name: str, server: dict[str, Any], text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        load_scenario({"name": "x", "data": {"name": name, "server": server}, "model": "linear"})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"classes": tuple(range(10))}, "leaves the devices no training sample"),
        ({"fraction": 1e-6}, "leaves the server no training sample"),
    ],
)
def test_empty_parts_are_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        load(Digits(server=keys))
