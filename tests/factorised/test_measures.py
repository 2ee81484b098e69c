"""Generalised coherence, and the distortion of products of randomly coded factors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from otafl.factorised import measures as module
from otafl.factorised.measures import coherence, compute_distortion

pytestmark = pytest.mark.exact


def test_known_values() -> None:
    """Equal vectors 1, orthogonal ones 0, two vectors the squared cosine."""
    angle = 0.7
    sets = torch.tensor(
        [
            [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]],
            [[1.0, 0.0, 0.0], [0.0, -3.0, 0.0]],
            [[1.0, 0.0, 0.0], [5 * math.cos(angle), 5 * math.sin(angle), 0.0]],
        ],
        dtype=torch.float64,
    )
    value, log_det = coherence(sets)
    expected = torch.tensor([1.0, 0.0, math.cos(angle) ** 2], dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    assert float(log_det[0]) < -30
    torch.testing.assert_close(log_det[1:], torch.log1p(-expected[1:]))


def test_many_vectors() -> None:
    """Against the determinant written out; more than fit a pass, scaled, with a zero vector and
    another trial's vectors beside them."""
    generator = torch.Generator().manual_seed(0)
    size = module._COLUMNS + 37
    vectors = torch.randn(2, 4, size, generator=generator) + 0.5
    scaled = vectors * torch.tensor([1.0, 1e-3, 40.0, 7.0])[:, None]
    value, log_det = coherence(torch.cat([scaled, torch.zeros(2, 1, size)], 1))
    unit = vectors.double() / vectors.double().norm(dim=2, keepdim=True)
    det = torch.linalg.det(unit @ unit.mT)
    torch.testing.assert_close(value, 1 - det, rtol=0, atol=1e-6)
    torch.testing.assert_close(log_det, det.log(), rtol=0, atol=1e-6)
    assert value.dtype == torch.float64
    assert abs(float(value[0] - value[1])) > 1e-6


def test_no_vector_or_one() -> None:
    value, log_det = coherence(torch.tensor([[[0.0, 0.0]], [[0.0, 2.0]]]))
    assert value.tolist() == [0.0, 0.0]
    assert log_det.tolist() == [0.0, 0.0]


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
