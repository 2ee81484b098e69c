"""Frozen weights that the devices of trials share, with each device's adapters."""

from __future__ import annotations

import pytest
import torch

from otafl.algorithms.adapters.adapters import Backbone

pytestmark = pytest.mark.exact


def test_the_backbone_is_stored_once() -> None:
    weight = torch.arange(24.0).view(1, 4, 6).expand(3, -1, -1)
    same = Backbone.store({"w": weight})
    assert same.params["w"].shape == (1, 4, 6)
    other = Backbone.store({"w": weight * torch.arange(3)[:, None, None]})
    assert other.params["w"].shape == (3, 4, 6)
