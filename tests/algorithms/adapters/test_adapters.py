"""Frozen weights that the devices of trials share, with each device's adapters."""

from __future__ import annotations

import pytest
import torch
from twins.setting import mlp

from otafl.algorithms.adapters.adapters import AdaptedModel, AdaptedWeight

pytestmark = pytest.mark.exact


def test_the_backbone_is_stored_once() -> None:
    adapted = AdaptedModel(mlp((4, 6, 2)), (), 1.0)
    weight = torch.arange(24.0).view(1, 4, 6).expand(3, -1, -1)
    adapted.freeze({"w": weight})
    assert adapted.backbone["w"].shape == (1, 4, 6)
    adapted.freeze({"w": weight * torch.arange(3)[:, None, None]})
    assert adapted.backbone["w"].shape == (3, 4, 6)


def test_an_adapter_is_a_scaled_product_beside_the_frozen_weight() -> None:
    """W + s (B A)^T, both ways."""
    generator = torch.Generator().manual_seed(0)
    weight, a, b = (
        torch.randn(3, *shape, generator=generator) for shape in ((4, 6), (2, 4), (6, 2))
    )
    x, g = (torch.randn(3, 5, side, generator=generator) for side in (4, 6))
    own, adapted = weight + 0.5 * (b @ a).mT, AdaptedWeight(weight, a, b, 0.5)
    torch.testing.assert_close(adapted.forward(x), x @ own, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(adapted.backward(g), g @ own.mT, rtol=1e-5, atol=1e-5)
