"""Frozen weights that the devices of trials share, with each device's adapters."""

from __future__ import annotations

import pytest
import torch

from otafl.algorithms.adapters.adapters import AdaptedWeight, Backbone, FrozenWeight
from otafl.core.contracts import Cohort

pytestmark = pytest.mark.exact


def test_the_backbone_is_stored_once() -> None:
    weight = torch.arange(24.0).view(1, 4, 6).expand(3, -1, -1)
    same = Backbone.store({"w": weight})
    assert same.params["w"].shape == (1, 4, 6)
    other = Backbone.store({"w": weight * torch.arange(3)[:, None, None]})
    assert other.params["w"].shape == (3, 4, 6)


def make_rows(counts: tuple[int, ...]) -> Cohort:
    trial = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    device = torch.cat([torch.arange(count) for count in counts])
    return Cohort.create(trial, device, torch.ones(len(trial)), counts, max(counts))


@pytest.mark.parametrize("counts", [(2, 2, 2), (2, 0, 2), (0, 3, 0), (1, 3, 2)])
def test_shared_weights_multiply_their_rows(counts: tuple[int, ...]) -> None:
    """Whatever rows a chunk has, each is multiplied by the weight of its trial, both ways."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 4, 6, generator=generator)
    rows = make_rows(counts)
    n = rows.num_rows
    x, g = (torch.randn(n, 5, side, generator=generator) for side in (4, 6))
    a, b = (torch.randn(n, *shape, generator=generator) for shape in ((2, 4), (6, 2)))
    own = weight[rows.trial] + 0.5 * (b @ a).mT
    found = AdaptedWeight(Backbone({"w": weight}).freeze("w", rows), a, b, 0.5)
    torch.testing.assert_close(found.forward(x), x @ own, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.backward(g), g @ own.mT, rtol=1e-5, atol=1e-5)
    whole = FrozenWeight(weight)
    torch.testing.assert_close(whole.forward(x[:1]), x[:1] @ weight)
