"""Antennas that are correlated, and fading that is drawn many rounds at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.channels.fading import FAR, RoundBlocks, correlate_antennas

pytestmark = pytest.mark.exact


def test_antennas_are_correlated_by_the_cholesky_factor() -> None:
    """Of Sionna's exponential correlation matrix."""
    from sionna.phy.channel import exp_corr_mat

    matrix = exp_corr_mat(torch.tensor(0.3), 6, precision="double", device="cpu")
    h = torch.randn(2, 6, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.cholesky(matrix) @ h
    torch.testing.assert_close(correlate_antennas(h, 0.3, 1), expected)
    torch.testing.assert_close(correlate_antennas(h.mT, 0.3, -1), expected.mT)


class Asked:
    """Draws the numbers of rounds, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []

    def draw(self, first: int, rounds: int) -> Tensor:
        self.blocks.append((first, rounds))
        return torch.arange(first, first + rounds)


def test_rounds_are_drawn_in_blocks_that_start_at_multiples_of_their_length() -> None:
    asked = Asked()
    rounds = RoundBlocks(asked.draw, 8)
    assert [int(rounds[t]) for t in (3, 7, 0, 8, 2**40 + 5)] == [3, 7, 0, 8, 2**40 + 5]
    assert asked.blocks == [(0, 8), (8, 8), (2**40, 8)]


def test_far_rounds_are_drawn_alone_if_a_block_has_one_of_them() -> None:
    for spacing, lengths in ((7, [8, 8]), (8, [1] * 3)):
        asked = Asked()
        rounds = RoundBlocks(asked.draw, 8, spacing)
        wanted = (3, FAR - 1, FAR, FAR + spacing, FAR + 2 * spacing)
        assert [int(rounds[t]) for t in wanted] == list(wanted)
        assert [length for _, length in asked.blocks] == [8, 8, *lengths]


def test_the_first_block_is_split_at_powers_of_two() -> None:
    """Every round is drawn once; rounds before the run have whole blocks."""
    asked = Asked()
    rounds = RoundBlocks(asked.draw, 40, grows=True)
    assert [int(rounds[t]) for t in range(80)] == list(range(80))
    assert int(rounds[-1]) == -1
    assert asked.blocks == [(0, 16), (16, 16), (32, 8), (40, 40), (-40, 40)]
