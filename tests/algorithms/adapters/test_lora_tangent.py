"""Coordinates in the tangent space at the best low-rank part of a weight."""

from __future__ import annotations

import pytest
import torch

from otafl.algorithms.adapters import lora_factors
from otafl.algorithms.adapters.adapters import AdaptedLayer
from otafl.factorised import lowrank

pytestmark = pytest.mark.exact


def test_a_step_along_the_point_is_exact() -> None:
    """A mean U H V^T keeps the rank, so no retraction bends it; two trials of other rates."""
    layer = AdaptedLayer("w", 5, 4, 2, 1)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    points, _ = lora_factors.split_weights((layer,), {"w": weight})
    at = lora_factors.get_point(points, layer)
    change = at.u @ torch.randn(2, 2, 2, generator=generator, dtype=torch.float64)
    mean = {"a.w": change, "b.w": torch.zeros_like(at.v)}
    step = torch.tensor([1.0, 0.3], dtype=torch.float64)[:, None, None]
    new = lora_factors.retract((layer,), points, mean, step)
    expected = lowrank.to_dense(at) + step * change @ at.v.mT
    torch.testing.assert_close(
        lowrank.to_dense(lora_factors.get_point(new, layer)), expected, rtol=1e-10, atol=1e-10
    )
