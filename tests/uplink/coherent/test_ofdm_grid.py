"""Channel uses on sub-carriers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from twins import ofdm as twin

from otafl.core.contracts import ChannelState
from otafl.uplink.coherent.ofdm_grid import lay_out

pytestmark = pytest.mark.exact


def test_uses_lie_where_loops_put_them() -> None:
    """Every use once, in the cell that the channel says."""
    for uses, groups, block in itertools.product((5, 32, 83), (1, 2, 8), (None, 16)):
        h = torch.ones(1, 1, 1, 1 if block is None else -(-uses // block), groups)
        stops = ChannelState(h, torch.ones(1, 1), block).compute_cell_ends(h, uses)
        grid = lay_out(stops, groups, 8, 3, torch.device("cpu"))
        expected = twin.laid_out(np.arange(1, uses + 1), groups, 8, block).real.astype(int)
        source = grid.sources(grid.place) + 1
        np.testing.assert_array_equal(source.numpy(), expected)
        assert grid.symbols == len(expected)
        assert grid.samples == len(expected) * 11
        assert grid.repeats == 11 / 8


def test_groups_of_a_payload() -> None:
    """Each has the places of its own uses."""
    grid = lay_out([10, 20], 2, 8, 3, torch.device("cpu"))
    assert grid.place.tolist()[:11] == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 4]
    source = grid.sources(torch.tensor([3, 4]))
    assert source[0].tolist() == [-1, -1, -1, 0, 1, -1, -1, -1]
    assert (source[1:] == -1).all()
