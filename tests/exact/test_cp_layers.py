"""Layers in CP form against the dense layers that their factors make: facts F1, F2.

Mutations that must fail: height and width exchanged, the bias in an early stage, padding or stride
on one side only, an image of all rows not repeated, factors of one row used for all, a transpose
missing in either pass, samples of one part only.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.factorised import cp
from otafl.models import convolution, cp_layers
from otafl.models.base import LayeredModel
from otafl.models.cnn import Cnn
from otafl.models.config import CnnConfig
from otafl.models.geometry import Window
from otafl.models.vgg8 import Vgg8Config


def normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape) + len(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def factors(n: int, rank: int, modes: tuple[int, ...]) -> list[Tensor]:
    return [normal(n, rank, size, m + 1)[..., 0] for m, size in enumerate(modes)]


def test_dense_layer_forward_and_backward() -> None:
    a = factors(3, 4, (7, 5))
    weight, own = cp.kruskal(a), cp_layers.CpMap(a)
    x, g = normal(3, 6, 7), normal(3, 6, 5)
    torch.testing.assert_close(own.forward(x), x @ weight, rtol=0, atol=1e-13)
    torch.testing.assert_close(own.backward(g), g @ weight.mT, rtol=0, atol=1e-13)
    torch.testing.assert_close(own.forward(x[:1]), x[:1] @ weight, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
def test_convolution_in_four_stages(kernel: int, padding: int, stride: int, shared: bool) -> None:
    """Against PyTorch's, with its weight [I_T, I_S, I_d, I_d] = einsum("pr,qr,sr,tr->tspq"), and
    against the model's own on the dense matrix."""
    n, rank, channels, outputs = 2, 6, 3, 4
    window = Window(channels, 9, 8, kernel, stride, padding)
    a = factors(n, rank, (kernel, kernel, channels, outputs))
    bias = normal(n, outputs)
    image = normal(5, (1 if shared else n) * channels, 9, 8)
    ours = cp_layers.convolve(image, a, bias, window)
    weight = torch.einsum("nrp,nrq,nrs,nrt->ntspq", *a)
    for row in range(n):
        seen = image if shared else image[:, row * channels : (row + 1) * channels]
        expected = functional.conv2d(seen, weight[row], bias[row], stride, padding)
        part = ours[:, row * outputs : (row + 1) * outputs]
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-12)
    dense = convolution.convolve(image, cp.kruskal(a), bias, window)
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-12)
    single = cp_layers.convolve(image.float(), [f.float() for f in a], bias.float(), window)
    assert float((single.double() - dense).norm() / dense.norm()) < 2e-6


@pytest.mark.parametrize("shared", [True, False])
def test_whole_model(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CnnConfig(channels=(4, 3), kernel=3, hidden=(6,))
    model = Cnn(config, (2, 8, 8), 5)
    own = {layer.weight: factors(2, 4, cp_layers.modes(layer)) for layer in model.layers}
    biases = {layer.bias: normal(2, layer.outputs) for layer in model.layers}
    dense = {name: cp.kruskal(f) for name, f in own.items()} | biases
    x = normal(1 if shared else 2, 7, 2, 8, 8)
    expected = model.logits(dense, x)
    ours = cp_layers.logits(model, own, biases, x)
    assert float((ours - expected).norm() / expected.norm()) < 1e-12
    monkeypatch.setattr(cp_layers, "PATCHES_AT_ONCE", 2 * 64 * 4 * 3)
    in_parts = cp_layers.logits(model, own, biases, x)
    torch.testing.assert_close(in_parts, ours)


def vgg8() -> LayeredModel:
    config = registry.settings("model", "vgg8")()
    model = registry.component("model", "vgg8")(config, (3, 32, 32), 10)
    assert isinstance(model, LayeredModel)
    return model


def test_vgg8_has_the_papers_layers() -> None:
    """Table I, and the dense parameters of both networks."""
    model = vgg8()
    assert [cp_layers.modes(layer) for layer in model.layers] == [
        *((3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 128), (3, 3, 128, 256), (3, 3, 256, 256)),
        *((256, 256), (256, 256), (256, 10)),
    ]
    assert model.size == 1_112_650
    windows = [layer.window for layer in model.layers[:5]]
    assert [w.pooled for w in windows if w] == [(16, 16), (8, 8), (4, 4), (2, 2), (1, 1)]
    assert [w.padding for w in windows if w] == [1] * 5


@pytest.mark.parametrize("shape", [(784,), (64,), (3, 32, 32), (1, 48, 40)])
def test_vgg8_leaves_what_is_too_small_to_pool(shape: tuple[int, ...]) -> None:
    model = registry.component("model", "vgg8")(
        Vgg8Config(channels=(2, 3, 4, 5, 6)), shape, 10
    )
    assert model.layers[5].inputs == 6
    x = normal(1, 2, *shape)
    params = {n: normal(1, *s) for n, s in model.shapes.items()}
    assert model.logits(params, x).shape == (1, 2, 10)


def test_a_cnn_says_where_it_does_not_fit() -> None:
    assert Vgg8Config().name == "vgg8"
    with pytest.raises(UserError, match="convolution 5 leaves an image of only 1x1"):
        Cnn(CnnConfig(channels=(2, 3, 4, 5, 6), kernel=3), (784,), 10)
