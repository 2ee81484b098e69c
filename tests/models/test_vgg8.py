"""VGG8 of the TDPFed paper: its layers, and images that are too small for it."""

from __future__ import annotations

import pytest
import torch

from otafl.models import LayeredModel, build, list_layer_sides
from otafl.models.cnn import Vgg8

pytestmark = pytest.mark.exact


def test_it_has_the_papers_layers() -> None:
    """Table I, and the dense parameters of both networks."""
    model = build(Vgg8.Settings(), (3, 32, 32), 10)
    assert isinstance(model, LayeredModel)
    assert [layer.modes for layer in model.layers] == [
        *((3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 128), (3, 3, 128, 256), (3, 3, 256, 256)),
        *((256, 256), (256, 256), (256, 10)),
    ]
    assert model.num_params == 1_112_650
    assert list(model.positions.values()) == [1024, 256, 64, 16, 4]


@pytest.mark.parametrize("shape", [(784,), (1, 48, 40)])
def test_it_leaves_what_is_too_small_to_pool(shape: tuple[int, ...]) -> None:
    settings = Vgg8.Settings(channels=(2, 3, 4, 5, 6))
    model = Vgg8(settings, shape, 10)
    assert model.layers[5].inputs == 6
    assert list_layer_sides(settings, shape, 10) == [
        (one.inputs, one.outputs) for one in model.layers
    ]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 2, *shape, generator=generator)
    params = {n: torch.randn(1, *s, generator=generator) for n, s in model.shapes.items()}
    assert model.logits(params, x).shape == (1, 2, 10)
