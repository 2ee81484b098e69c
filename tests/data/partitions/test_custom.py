"""A partition of the user's own, a function of the deck, and what is said of a wrong one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from otafl.core.errors import UserError
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.custom import CustomPartition

pytestmark = pytest.mark.exact


def every(deck: PartitionTask, start: int = 0) -> Any:
    """Each device every K-th sample from a place on."""
    return [range(start + k, len(deck.labels), deck.devices) for k in range(deck.devices)]


every.shuffled = True  # type: ignore[attr-defined]


def few(deck: PartitionTask) -> Any:
    return every(deck)[1:]


def empty(deck: PartitionTask) -> Any:
    return [*every(deck)[1:], []]


def twice(deck: PartitionTask) -> Any:
    return [[7, 8]] * deck.devices


def beyond(deck: PartitionTask) -> Any:
    return [[k, -1 - k] for k in range(deck.devices)]


def own(name: str, **keys: Any) -> CustomPartition:
    return CustomPartition(name=f"data.partitions.test_custom:{name}", **keys)


def deck() -> PartitionTask:
    return PartitionTask(np.arange(20) % 4, 3, np.random.default_rng(1))


def test_samples_of_devices() -> None:
    dealt = own("every", start=2).assign_samples(deck())
    assert [part.tolist() for part in dealt] == [list(range(2 + k, 20, 3)) for k in range(3)]
    assert own("every").is_shuffled
    assert not own("every").groups_users


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("few", "the samples of 2 devices; expected those of 3"),
        (
            "empty",
            "shape [0] and type float64 for device 2; expected at least one sample",
        ),
        ("twice", "sample 7 3 times; expected each once at most"),
        ("beyond", "indices out of range; expected whole numbers from 0 to 19"),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        own(name).assign_samples(deck())
    start = f"data.partition.name: 'data.partitions.test_custom:{name}' returned "
    assert str(error.value).startswith(start)
