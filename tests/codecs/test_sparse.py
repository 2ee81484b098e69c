"""Random subsets, by their law; seeds are fixed."""

from __future__ import annotations

import pytest
import torch

from otafl.codecs.sparse import draw_random_subset
from otafl.core.rng import Streams

pytestmark = pytest.mark.law


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
