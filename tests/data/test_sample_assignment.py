"""Who has which samples, in two arrays, against arrays of each device."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.data.partitions.base import SampleAssignment

pytestmark = pytest.mark.exact

PARTS = [np.array([4, 2, 9]), np.array([7]), np.array([1, 0])]


def test_it_is_a_sequence_of_arrays() -> None:
    dealt = SampleAssignment.from_parts(PARTS)
    assert len(dealt) == 3
    for one, other in zip(dealt, PARTS, strict=True):
        assert_array_equal(one, other)
    assert dealt[-1].tolist() == [1, 0]
    assert [part.tolist() for part in dealt[1:]] == [[7], [1, 0]]
    assert SampleAssignment.from_parts(dealt) is dealt
    with pytest.raises(IndexError, match="device 3 of 3"):
        dealt[3]


@pytest.mark.parametrize(("samples", "devices"), [(10, 3), (9, 3), (3, 3), (11, 4)])
def test_evenly_is_numpys(samples: int, devices: int) -> None:
    places = np.random.default_rng(0).permutation(samples)
    for one, other in zip(
        SampleAssignment.split_evenly(places, devices), np.array_split(places, devices), strict=True
    ):
        assert_array_equal(one, other)


def test_groups_keep_the_order_of_their_places() -> None:
    dealt = SampleAssignment.group_by_device(np.array([5, 3, 8, 1]), np.array([2, 0, 2, 0]), 4)
    assert [part.tolist() for part in dealt] == [[3, 1], [], [5, 8], []]


def test_padding_is_a_devices_own_first_sample() -> None:
    assert SampleAssignment.from_parts(PARTS).pad(4).tolist() == [
        [4, 2, 9, 4],
        [7, 7, 7, 7],
        [1, 0, 1, 1],
    ]
