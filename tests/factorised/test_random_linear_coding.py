"""Distortion of products of randomly coded factors."""

from __future__ import annotations

import itertools

import pytest
import torch

from otafl.factorised.measures import compute_distortion

pytestmark = pytest.mark.exact


def test_distortion_is_that_of_all_signs_of_two_coders() -> None:
    """Two models of rank 2 with weights of their own, over all 2^8 pairs of coders."""
    rank, weight = 2, torch.tensor([0.3, 0.7], dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    models = torch.randn(2, 4, 3, generator=random, dtype=torch.float64)
    u, s, vt = torch.linalg.svd(models, full_matrices=False)
    u, s, v = u[:, :, :rank], s[:, :rank], vt[:, :rank].mT
    theta = (u * s[:, None]) @ v.mT
    target = (weight[:, None, None] * theta).sum(0)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=2 * rank**2))).double()
    coder = signs.view(-1, 2, rank, rank) / rank**0.5
    scale = (weight[:, None] * s).sqrt()[:, None]
    left, right = (((side * scale) @ coder).sum(1) for side in (u, v))
    found = (left @ right.mT - target).square().sum((1, 2)).mean()
    law = compute_distortion(
        s.sum(1)[None], s.square().sum(1)[None], target.square().sum()[None], weight[None], rank
    )
    torch.testing.assert_close(found[None], law)
