"""The shape that a data set declares is the one that is read."""

from __future__ import annotations

from typing import Any

import pytest

from otafl.core import registry
from otafl.data.digits import Digits
from otafl.data.femnist import Femnist
from otafl.data.loading import load
from otafl.data.shape import get_declared_shape, read_shape

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    "keys", [{}, {"train_samples": 300}, {"test": "train_tail"}, {"test": "per_device"}]
)
def test_the_declared_shape_is_the_one_that_is_read(keys: dict[str, Any]) -> None:
    source = Digits(**keys)
    assert get_declared_shape(source) == read_shape(source)


def test_what_is_not_declared() -> None:
    """FEMNIST's number of samples is only in its file."""
    shape = get_declared_shape(Femnist())
    assert shape is not None
    assert (shape.classes, shape.samples) == (62, 0)


def test_declared_sizes() -> None:
    data = load(Digits())
    assert (len(data.y_train), len(data.y_test)) == Digits.samples
    declared = [
        one for one in registry.list_names("data") if registry.load_component("data", one).samples
    ]
    assert declared == ["digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "ridge"]
