"""A partition of the user's own, a function of the deck, and what is said of a wrong one.

Mutations that make a test here fail: options not passed on, an attribute ignored, a sample that two
devices have let through, a device without samples, places that are none.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from otafl.core.errors import UserError
from otafl.data.dealt import Dealt
from otafl.data.partitions import Deck
from otafl.data.partitions.custom import CustomPartition
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


def every(deck: Deck, start: int = 0) -> Any:
    """Each device every K-th sample from a place on."""
    return [range(start + k, len(deck.labels), deck.devices) for k in range(deck.devices)]


every.shuffled = True  # type: ignore[attr-defined]


def ready(deck: Deck) -> Any:
    return Dealt.evenly(deck.shuffled(), deck.devices)


def few(deck: Deck) -> Any:
    return every(deck)[1:]


def empty(deck: Deck) -> Any:
    return [*every(deck)[1:], []]


def twice(deck: Deck) -> Any:
    return [[7, 8]] * deck.devices


def beyond(deck: Deck) -> Any:
    return [[k, -1 - k] for k in range(deck.devices)]


def shares(deck: Deck) -> Any:
    return [[0.5 + k] for k in range(deck.devices)]


def number(deck: Deck) -> Any:
    return 3


def own(name: str, **keys: Any) -> CustomPartition:
    return CustomPartition(name=f"data.partitions.test_custom:{name}", **keys)


def deck() -> Deck:
    return Deck(np.arange(20) % 4, 3, np.random.default_rng(1))


def test_samples_of_devices() -> None:
    dealt = own("every", start=2).deal(deck())
    assert [part.tolist() for part in dealt] == [list(range(2 + k, 20, 3)) for k in range(3)]
    assert own("every").shuffled
    assert not own("ready").shuffled
    assert not own("every").by_user
    assert sorted(own("ready").deal(deck()).places) == list(range(20))


def test_in_a_scenario() -> None:
    section = {"name": "data.partitions.test_custom:every", "start": 5}
    one = load_scenario({"name": "s", "data": {"partition": section}})
    assert isinstance(one.data.partition, CustomPartition)
    assert one.data.partition.options == {"start": 5}
    with pytest.raises(UserError, match=r"^data\.partition: .* does not fit the section's keys: "):
        own("every", stat=5).found()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("few", "the samples of 2 devices; those of 3 would do"),
        (
            "empty",
            "for device 2 an array of shape [0] and type float64; at least one sample, as pl",
        ),
        ("twice", "sample 7 3 times; each once at most would do"),
        ("beyond", "places that are none; whole numbers from 0 to 19 would do"),
        (
            "shares",
            "for device 0 an array of shape [1] and type float64; at least one sample, as p",
        ),
        ("number", "a int; a list, one item for each device, would do"),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        own(name).deal(deck())
    start = f"data.partition.name: 'data.partitions.test_custom:{name}' returned "
    assert str(error.value).startswith(start)
