"""Layers in CP form against the dense layers that their factors make: facts F1, F2."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from otafl.factorised import cp
from otafl.models import Window, convolution, cp_layers, layered
from otafl.models.cnn import Cnn

pytestmark = pytest.mark.exact


def normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape) + len(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def factors(n: int, rank: int, modes: tuple[int, ...]) -> list[Tensor]:
    return [normal(n, rank, size, m + 1)[..., 0] for m, size in enumerate(modes)]


def test_dense_layer_forward_and_backward() -> None:
    a = factors(3, 4, (7, 5))
    weight, own = cp.kruskal(a), cp_layers.CpMap(a)
    x, g = normal(3, 6, 7), normal(3, 6, 5)
    torch.testing.assert_close(own.forward(x), x @ weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(own.backward(g), g @ weight.mT, rtol=0, atol=1e-12)
    torch.testing.assert_close(own.forward(x[:1]), x[:1] @ weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "padding", "stride", "shared"), [(3, 1, 2, False), (5, 0, 1, True)]
)
def test_convolution_in_four_stages(kernel: int, padding: int, stride: int, shared: bool) -> None:
    """Against PyTorch's, with its weight [I_T, I_S, I_d, I_d] = einsum("pr,qr,sr,tr->tspq"), and
    against the model's own on the dense matrix."""
    n, rank, channels, outputs = 2, 6, 3, 4
    window = Window(channels, 9, 8, kernel, stride, padding)
    a = factors(n, rank, (kernel, kernel, channels, outputs))
    bias = normal(n, outputs)
    image = normal(5, (1 if shared else n) * channels, 9, 8)
    ours = cp_layers.make_map(a).convolve(image, bias, window)
    weight = torch.einsum("nrp,nrq,nrs,nrt->ntspq", *a)
    for row in range(n):
        seen = image if shared else image[:, row * channels : (row + 1) * channels]
        expected = functional.conv2d(seen, weight[row], bias[row], stride, padding)
        part = ours[:, row * outputs : (row + 1) * outputs]
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-12)
    dense = convolution.convolve(image, cp.kruskal(a), bias, window)
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-12)
    small = cp_layers.make_map([f.float() for f in a])
    single = small.convolve(image.float(), bias.float(), window)
    assert float((single.double() - dense).norm() / dense.norm()) < 1e-5


@pytest.mark.parametrize("shared", [True, False])
def test_whole_model(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Cnn.Settings(channels=(4, 3), kernel=3, hidden=(6,))
    model = Cnn(settings, (2, 8, 8), 5)
    own = {layer.weight: factors(2, 4, cp_layers.get_modes(layer)) for layer in model.layers}
    biases = {layer.bias: normal(2, layer.outputs) for layer in model.layers}
    dense = {name: cp.kruskal(f) for name, f in own.items()} | biases
    x = normal(1 if shared else 2, 7, 2, 8, 8)
    expected = model.logits(dense, x)
    maps = {name: cp_layers.make_map(f) for name, f in own.items()} | biases
    ours = model.logits(maps, x)
    assert float((ours - expected).norm() / expected.norm()) < 1e-12
    monkeypatch.setattr(layered, "NUMBERS_AT_ONCE", 2 * 64 * 4 * 3)
    in_parts = model.logits(maps, x)
    torch.testing.assert_close(in_parts, ours)
