"""Random subsets by their law, and the bits of their positions; seeds are fixed."""

from __future__ import annotations

import math

import pytest

from otafl.codecs.sparse import count_position_bits


@pytest.mark.exact
def test_positions_by_hand() -> None:
    """A list of 7-bit positions or a map of 100, and C(100, 3) = 161,700 < 2^18 subsets."""
    assert count_position_bits(100, 3) == 21
    assert count_position_bits(100, 30) == 100
    assert count_position_bits(100, 3, "enumerative") == 18
    for code in ("plain", "enumerative"):
        assert count_position_bits(100, 100, code) == 0  # type: ignore[arg-type]
        assert count_position_bits(1024, 1, code) == 10  # type: ignore[arg-type]
    assert count_position_bits(1025, 1, "enumerative") == 11
    assert count_position_bits(2048, 1, "enumerative") == 11


@pytest.mark.exact
@pytest.mark.parametrize("count", [2, 239])
def test_positions_of_many_coordinates(count: int) -> None:
    """The count by logarithms is that of the whole number of subsets, and never above a list or a
    map."""
    bits = count_position_bits(5000, count, "enumerative")
    assert bits == (math.comb(5000, count) - 1).bit_length()
    assert bits <= count_position_bits(5000, count)
