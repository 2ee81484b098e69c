"""Random subsets by their law, and the bits of their positions; seeds are fixed."""

from __future__ import annotations

import math

import pytest
import torch

from otafl.codecs.sparse import count_position_bits, draw_random_subset
from otafl.core.rng import Streams


@pytest.mark.law
def test_every_coordinate_is_as_likely() -> None:
    """Uniform subsets: counts of 20,000 draws of 3 of 8 within 5 standard deviations, pairs too."""
    draw = Streams([1], [0]).draw_uniform("x", 0, (20_000, 8))[0]
    some = draw_random_subset(draw, 3).double()
    assert (some.sum(1) == 3).all()
    both = some.mT @ some / 20_000
    single, pair = 3 / 8, 3 / 8 * 2 / 7
    expected = torch.full((8, 8), pair, dtype=torch.float64).fill_diagonal_(single)
    deviation = (expected * (1 - expected) / 20_000).sqrt()
    assert ((both - expected).abs() < 5 * deviation).all()


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
@pytest.mark.parametrize("count", [1, 2, 239, 2500])
def test_positions_of_many_coordinates(count: int) -> None:
    """The count by logarithms is that of the whole number of subsets, and never above a list or a
    map."""
    bits = count_position_bits(5000, count, "enumerative")
    assert bits == (math.comb(5000, count) - 1).bit_length()
    assert bits <= count_position_bits(5000, count)
