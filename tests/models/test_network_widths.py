"""Networks whose width and rank can be cut: what is cut of them, `mlp` and `cnn` as networks
against themselves.
"""

from __future__ import annotations

import pytest
import torch
from support.network_bench import CLOSE, B, N, draw_normal, draw_params

from otafl.core import registry
from otafl.models import LayeredModel
from otafl.models.cnn import Cnn
from otafl.models.layers import Conv
from otafl.models.mlp import Mlp
from otafl.models.network import ResizableModel

pytestmark = pytest.mark.exact

CLASSES, SHAPE = 4, (2, 9, 8)
SMALL: dict[str, ResizableModel] = {
    "mlp": Mlp(Mlp.Settings(hidden=(6, 8), activation="leaky_relu"), SHAPE, CLASSES),
    "cnn": Cnn(Cnn.Settings(channels=(4, 6), kernel=3, hidden=(8,)), SHAPE, CLASSES),
    "strided": Cnn(
        Cnn.Settings(channels=(4, 2), kernel=2, stride=2, padding="valid", pool=1, hidden=()),
        (9, 11),
        CLASSES,
    ),
}


@pytest.mark.parametrize(
    ("name", "parameters", "macs"),
    [
        ("vgg11", 9_228_362, 152_769_536),
        ("vgg16", 14_724_042, 313_201_664),
        ("resnet34", 21_282_122, 1_159_402_496),
    ],
)
def test_sizes(name: str, parameters: int, macs: int) -> None:
    """On 3x32x32 pixels and 10 classes."""
    model = registry.load_component("model", name)(
        registry.load_settings_class("model", name)(name=name), (3, 32, 32), 10
    )
    assert (model.num_params, model.macs) == (parameters, macs)


@pytest.mark.parametrize("name", ["mlp", "cnn", "strided"])
def test_layers_as_a_network(name: str) -> None:
    """The same scores, costs and number of parameters, in another layout."""
    model = SMALL[name]
    assert isinstance(model, LayeredModel)
    network, params = model.build_network(lambda channels: channels), draw_params(model)
    assert (network.num_params, network.macs) == (model.num_params, model.macs)
    own = {}
    for number, layer in enumerate(model.layers):
        weight = params[layer.weight]
        if isinstance(layer, Conv):
            k = layer.kernel
            weight = weight.view(N, k, k, layer.channels, -1).permute(0, 4, 3, 1, 2)
        else:
            weight = weight.unflatten(1, (layer.repeat, -1)).transpose(1, 2).flatten(1, 2)
        own[f"layer{number}.weight"] = weight.contiguous()
        own[f"layer{number}.bias"] = params[layer.bias]
    assert {name: block.shape[1:] for name, block in own.items()} == network.shapes
    shape = (9, 11) if name == "strided" else SHAPE
    x = draw_normal(N, B, *shape, seed=99)
    torch.testing.assert_close(network.logits(own, x), model.logits(params, x), **CLOSE)
