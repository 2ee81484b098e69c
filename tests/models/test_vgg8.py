"""VGG8 of the TDPFed paper: its layers, and images that are too small for it."""

from __future__ import annotations

import pytest

from otafl.models import LayeredModel, build
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
