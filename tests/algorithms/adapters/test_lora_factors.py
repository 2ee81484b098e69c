"""Factors of LoRA: coordinates in the tangent space, and the power of their groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.algorithms.adapters import lora_factors
from otafl.algorithms.adapters.adapters import AdaptedLayer, compute_product
from otafl.algorithms.adapters.lora_factors import compute_power_factors
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


def test_factors_are_those_of_the_tangent_vector() -> None:
    """B A = U S V^T + a V^T + U b^T."""
    layer = AdaptedLayer("w", 5, 4, 2, 1)
    generator = torch.Generator().manual_seed(2)
    weight, a, b = (
        torch.randn(3, *shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 4), (5, 2), (4, 2))
    )
    points, _ = lora_factors.split_weights((layer,), {"w": weight})
    u, s, v = lora_factors.get_point(points, layer)
    found = lora_factors.compose_tangents((layer,), points | {"a.w": a, "b.w": b})["w"]
    expected = (u * s[:, None] + a) @ v.mT + u @ b.mT
    torch.testing.assert_close(compute_product(*found), expected)


def test_power_factors() -> None:
    """Groups of 12 and 4 coordinates with norms 3 and 1."""
    first, second = torch.zeros(1, 12), torch.zeros(1, 4)
    first[0, 0], second[0, 0] = 3.0, 1.0
    parts = [{"A.w": first}, {"B.w": second}]
    assert compute_power_factors(parts, "symbol") == [None, None]
    for split, share in (("equal", 0.5), ("norm", 0.9), ("laser", 0.75)):
        found = [float(one) for one in compute_power_factors(parts, split) if one is not None]
        np.testing.assert_allclose(found, [share * 16 / 12, (1 - share) * 16 / 4], rtol=1e-6)
        assert found[0] * 12 + found[1] * 4 == pytest.approx(16)  # the energy of the slot
    zeros = [{"A.w": 0.0 * first}, {"B.w": 0.0 * second}]
    found = [float(one) for one in compute_power_factors(zeros, "norm") if one is not None]
    assert found == pytest.approx([0.5 * 16 / 12, 0.5 * 16 / 4])
