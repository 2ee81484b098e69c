"""Networks whose width and rank can be cut: what is cut of them, `mlp` and `cnn` as networks
against themselves.
"""

from __future__ import annotations

import pytest
import torch
from support.sized_bench import (
    CLOSE,
    F64,
    SHAPE,
    SMALL,
    B,
    N,
    divide_by_three,
    draw_normal,
    draw_params,
    make_full_network,
)

from otafl.core import registry
from otafl.models import LayeredModel
from otafl.models.layers import Conv

pytestmark = pytest.mark.exact

OF_SMALL = pytest.mark.parametrize("name", SMALL)


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
    network, params = make_full_network(model), draw_params(model)
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


@OF_SMALL
def test_every_hidden_width_is_cut(name: str) -> None:
    """A narrow network's parameters in the place of a prefix of each side, 0 elsewhere: the wide
    one's scores are the narrow one's."""
    model = SMALL[name]
    wide, narrow = make_full_network(model), model.build_network(divide_by_three)
    assert list(wide.shapes) == list(narrow.shapes)
    small, params = draw_params(narrow), {}
    for parameter, shape in wide.shapes.items():
        axes = wide.axes[parameter]
        cut = tuple(
            side if axis is None else divide_by_three(axis.channels) * axis.repeat
            for side, axis in zip(shape, axes, strict=True)
        )
        assert cut == narrow.shapes[parameter]
        block = torch.zeros(N, *shape, dtype=F64)
        block[(slice(None), *map(slice, cut))] = small[parameter]
        params[parameter] = block
    if wide.norms:
        return  # a norm's scores of zeros are its shift: zeros
    x = draw_normal(N, B, *wide.image, seed=99)
    torch.testing.assert_close(wide.logits(params, x), narrow.logits(small, x), **CLOSE)
