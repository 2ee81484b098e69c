"""Antennas that are correlated, and fading that is drawn many rounds at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.channels.fading import FAR, RoundBlocks, correlate_antennas

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("neighbours", [0.0, 0.3, 0.95])
def test_antennas_are_correlated_by_the_cholesky_factor(neighbours: float) -> None:
    """Of Sionna's exponential correlation matrix."""
    from sionna.phy.channel import exp_corr_mat

    matrix = exp_corr_mat(torch.tensor(neighbours), 6, precision="double", device="cpu")
    h = torch.randn(2, 6, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.cholesky(matrix) @ h
    torch.testing.assert_close(correlate_antennas(h, neighbours, 1), expected)
    torch.testing.assert_close(correlate_antennas(h.mT, neighbours, -1), expected.mT)


def test_rounds_are_drawn_in_blocks_that_start_at_multiples_of_their_length() -> None:
    asked: list[tuple[int, int]] = []

    def draw(first: int, rounds: int) -> Tensor:
        asked.append((first, rounds))
        return torch.arange(first, first + rounds)

    rounds = RoundBlocks(draw, 8)
    assert [int(rounds[t]) for t in (3, 7, 0, 8, 2**40 + 5)] == [3, 7, 0, 8, 2**40 + 5]
    assert asked == [(0, 8), (8, 8), (2**40, 8)]


@pytest.mark.parametrize(("spacing", "lengths"), [(7, [8, 8]), (8, [1] * 3), (1000, [1] * 3)])
def test_far_rounds_are_drawn_alone_if_a_block_has_one_of_them(
    spacing: int, lengths: list[int]
) -> None:
    asked: list[int] = []

    def draw(first: int, rounds: int) -> Tensor:
        asked.append(rounds)
        return torch.arange(first, first + rounds)

    rounds = RoundBlocks(draw, 8, spacing)
    wanted = (3, FAR - 1, FAR, FAR + spacing, FAR + 2 * spacing)
    assert [int(rounds[t]) for t in wanted] == list(wanted)
    assert asked == [8, 8, *lengths]


@pytest.mark.parametrize(
    ("length", "blocks"),
    [
        (64, [(0, 16), (16, 16), (32, 32), (64, 64)]),
        (40, [(0, 16), (16, 16), (32, 8), (40, 40)]),
        (5, [(0, 5), (5, 5)]),
    ],
)
def test_the_first_block_is_split_at_powers_of_two(
    length: int, blocks: list[tuple[int, int]]
) -> None:
    """Every round is drawn once; rounds before the run have whole blocks."""
    asked: list[tuple[int, int]] = []

    def draw(first: int, rounds: int) -> Tensor:
        asked.append((first, rounds))
        return torch.arange(first, first + rounds)

    rounds = RoundBlocks(draw, length, grows=True)
    assert [int(rounds[t]) for t in range(2 * length)] == list(range(2 * length))
    assert asked == blocks
    assert int(rounds[-1]) == -1
    assert asked[-1] == (-length, length)
