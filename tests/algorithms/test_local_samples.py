"""Holds the pieces of local samples to all of them, once."""

from __future__ import annotations

import pytest
import torch

from otafl.algorithms import local_samples
from otafl.core.contracts import Batch

pytestmark = pytest.mark.exact


def test_pieces_are_all_samples_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of 7, 1 and 4 samples are cut two at a time; a sample's input is its number."""
    monkeypatch.setattr(local_samples, "WIDTH", 2)
    sizes = torch.tensor([7, 1, 4])
    number = torch.arange(7).repeat(3, 1)
    weight = (number < sizes[:, None]).double() / sizes[:, None]
    for full, expected in (
        (Batch(number[:, :, None].double(), number, weight), sizes * (sizes - 1) / 2),
        (Batch(number[:, :, None].double(), number, None), torch.full((3,), 21.0)),
    ):
        total, shares, most = torch.zeros(3).double(), torch.zeros(3).double(), []
        for rows, piece in local_samples.split_into_pieces(full):
            assert piece.weight is not None
            local_samples.add_(
                total, rows, (piece.x[:, :, 0] * local_samples.get_sample_mask(piece)).sum(1)
            )
            local_samples.add_(shares, rows, piece.weight.sum(1))
            most.append(len(piece.y))
        assert total.tolist() == expected.tolist()
        torch.testing.assert_close(shares, torch.ones(3).double())
        assert most == ([3, 2, 1, 1] if full.weight is not None else [3, 3, 3, 3])
