"""Models whose width and rank can be cut: sizes, what is cut of them, small networks against
`torch.nn.functional`, `mlp` and `cnn` as networks against themselves, what is refused.

Mutations that must fail: channels(c) at the image or the classes, not at hidden layers, norms or
biases; the pixels of a flattened image before its channels in `axes`; ReLU, norms or poolings left
out; `last_pool` or `hidden` ignored; a pooling of one pixel, one left out earlier; the slope
ignored; 1x1 shortcuts or the classifier in `factorisable`; groups that do not divide.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from otafl.core import registry
from otafl.core.contracts import Blocks
from otafl.core.errors import UserError
from otafl.models.base import LayeredModel
from otafl.models.cnn import Cnn
from otafl.models.config import CnnConfig, MlpConfig
from otafl.models.config_network import ConvNetConfig, ResNetConfig, VggConfig
from otafl.models.conv_net import ConvNet
from otafl.models.mlp import Mlp
from otafl.models.network import Conv, MaxPool, Network, Norm, Sized, each_step
from otafl.models.resnet import ResNet
from otafl.models.vgg import Vgg

F64 = torch.float64
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-11}
N, B, CLASSES, SHAPE = 3, 5, 4, (2, 9, 8)


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def some_params(model: Any, rows: int = N) -> Blocks:
    return {
        name: some(rows, *shape, seed=number) / 2
        for number, (name, shape) in enumerate(model.shapes.items())
    }


def whole(model: Sized) -> Network:
    return model.network(lambda channels: channels)


def third(channels: int) -> int:
    """Of so many, rounded up."""
    return -(-channels // 3)


SMALL: dict[str, Sized] = {
    "mlp": Mlp(MlpConfig(hidden=(6, 8), activation="leaky_relu"), SHAPE, CLASSES),
    "cnn": Cnn(CnnConfig(channels=(4, 6), kernel=3, hidden=(8,)), SHAPE, CLASSES),
    "strided": Cnn(
        CnnConfig(channels=(4, 2), kernel=2, stride=2, padding="valid", pool=1, hidden=()),
        (9, 11),
        CLASSES,
    ),
    "conv_net": ConvNet(ConvNetConfig(channels=(4, 6), hidden=(8, 2)), SHAPE, CLASSES),
    "conv_net none": ConvNet(
        ConvNetConfig(channels=(4, 6), norm="none", hidden=(8,), last_pool=False), SHAPE, CLASSES
    ),
    "resnet none": ResNet(
        ResNetConfig(blocks=(1, 1), channels=(4, 6), norm="none"), SHAPE, CLASSES
    ),
    "vgg none": Vgg(VggConfig(blocks=(2, 1), channels=(4, 6), norm="none"), SHAPE, CLASSES),
}
OF_SMALL = pytest.mark.parametrize("name", SMALL)


@pytest.mark.parametrize(
    ("name", "parameters", "macs"),
    [
        ("vgg11", 9_228_362, 152_769_536),
        ("vgg16", 14_724_042, 313_201_664),
        ("resnet34", 21_282_122, 1_159_402_496),
        ("resnet", 19_954, 3_236_160),
        ("vgg", 15_698, 1_401_152),
        ("conv_net", 33_946, 2_811_904),
    ],
)
def test_sizes(name: str, parameters: int, macs: int) -> None:
    """On 3x32x32 pixels and 10 classes; the presets', as their settings say."""
    config = registry.settings("model", name)
    model = registry.component("model", name)(config(), (3, 32, 32), 10)
    assert (model.size, model.macs) == (parameters, macs)
    if name in ("vgg11", "vgg16", "resnet34"):
        assert f"{parameters:,} parameters" in " ".join(str(config.__doc__).split())


@pytest.mark.parametrize("name", ["mlp", "cnn", "strided"])
def test_layers_as_a_network(name: str) -> None:
    """The same scores, costs and number of parameters, in another layout."""
    model = SMALL[name]
    assert isinstance(model, LayeredModel)
    network, params = whole(model), some_params(model)
    assert (network.size, network.macs) == (model.size, model.macs)
    own, pixels = {}, 1
    for number, layer in enumerate(model.layers):
        weight, window = params[layer.weight], layer.window
        if window is not None:
            k = window.kernel
            weight = weight.view(N, k, k, window.channels, -1).permute(0, 4, 3, 1, 2)
            pixels = window.features
        elif pixels > 1:
            weight = weight.unflatten(1, (pixels, -1)).transpose(1, 2).flatten(1, 2)
            pixels = 1
        own[f"layer{number}.weight"] = weight.contiguous()
        own[f"layer{number}.bias"] = params[layer.bias]
    assert {name: block.shape[1:] for name, block in own.items()} == network.shapes
    shape = (9, 11) if name == "strided" else SHAPE
    x = some(N, B, *shape, seed=99)
    torch.testing.assert_close(network.logits(own, x), model.logits(params, x), **CLOSE)


@OF_SMALL
def test_every_hidden_width_is_cut(name: str) -> None:
    """A narrow network's parameters in the place of a prefix of each side, 0 elsewhere: the wide
    one's scores are the narrow one's."""
    model = SMALL[name]
    wide, narrow = whole(model), model.network(third)
    assert list(wide.shapes) == list(narrow.shapes)
    small, params = some_params(narrow), {}
    for parameter, shape in wide.shapes.items():
        axes = wide.axes[parameter]
        cut = tuple(
            side if axis is None else third(axis.channels) * axis.repeat
            for side, axis in zip(shape, axes, strict=True)
        )
        assert cut == narrow.shapes[parameter]
        block = torch.zeros(N, *shape, dtype=F64)
        block[(slice(None), *map(slice, cut))] = small[parameter]
        params[parameter] = block
    if wide.norms:
        return  # a norm's scores of zeros are its shift: zeros
    x = some(N, B, *wide.image, seed=99)
    torch.testing.assert_close(wide.logits(params, x), narrow.logits(small, x), **CLOSE)


def test_norms_are_cut_too() -> None:
    """Channels of zeros stay zeros where scale and shift are."""
    config = ResNetConfig(blocks=(1, 2), channels=(4, 6))
    wide = ResNet(config, SHAPE, CLASSES)
    narrow = wide.network(third)
    small, params = some_params(narrow), {}
    for name, shape in wide.shapes.items():
        block = torch.zeros(N, *shape, dtype=F64)
        block[(slice(None), *map(slice, narrow.shapes[name]))] = small[name]
        params[name] = block
    x = some(N, B, *SHAPE, seed=99)
    torch.testing.assert_close(wide.logits(params, x), narrow.logits(small, x), **CLOSE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlp", ("layer0", "layer1")),
        ("cnn", ("layer0", "layer1", "layer2")),
        ("conv_net", ("conv1", "conv2", "linear1", "linear2")),
        (
            "resnet none",
            ("stem.conv", *(f"stage{s}.block1.conv{c}" for s in (1, 2) for c in (1, 2))),
        ),
        ("vgg none", ("stage1.conv1", "stage1.conv2", "stage2.conv1")),
    ],
)
def test_factorisable(name: str, expected: tuple[str, ...]) -> None:
    model = SMALL[name]
    assert isinstance(model, Sized)
    assert model.factorisable == whole(model).factorisable == expected
    low = whole(model).with_ranks(dict.fromkeys(expected, 2))
    kept = [name for name in low.shapes if name.endswith((".left", ".right"))]
    assert len(kept) == 2 * len(expected)


def normal(kind: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if kind == "group":
        return functional.group_norm(x, 2, weight, bias)
    return functional.batch_norm(x, None, None, weight, bias, training=True)


@pytest.mark.parametrize("kind", ["batch", "group"])
def test_conv_net_against_torch(kind: str) -> None:
    config = ConvNetConfig(channels=(4, 6), norm=kind, hidden=(3,), last_pool=kind == "batch")
    network = ConvNet(config, SHAPE, CLASSES)
    params, batch = some_params(network), some(N, B, *SHAPE, seed=99)
    scores = network.training_logits(params, batch)
    for row in range(N):
        p, x = {name: block[row] for name, block in params.items()}, batch[row]
        for number in (1, 2):
            x = functional.conv2d(x, p[f"conv{number}.weight"], padding=1)
            x = normal(kind, x, p[f"norm{number}.weight"], p[f"norm{number}.bias"]).relu()
            if number == 1 or config.last_pool:
                x = functional.max_pool2d(x, 2)
        x = (x.flatten(1) @ p["linear1.weight"] + p["linear1.bias"]).relu()
        expected = x @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[row], expected, **CLOSE)


def test_vgg_against_torch() -> None:
    """Images of 9x8 pixels are of 1x1 after three poolings, so the fourth is left out."""
    config = VggConfig(blocks=(1, 2, 1, 1), channels=(3, 4, 2, 5))
    network = Vgg(config, SHAPE, CLASSES)
    assert sum(isinstance(step, MaxPool) for step in network.steps) == 3
    params, batch = some_params(network), some(N, B, *SHAPE, seed=99)
    scores = network.training_logits(params, batch)
    for row in range(N):
        p, x = {name: block[row] for name, block in params.items()}, batch[row]
        for stage, blocks in enumerate(config.blocks, 1):
            for block in range(1, blocks + 1):
                conv, norm = f"stage{stage}.conv{block}", f"stage{stage}.norm{block}"
                x = functional.conv2d(x, p[f"{conv}.weight"], padding=1)
                x = normal("batch", x, p[f"{norm}.weight"], p[f"{norm}.bias"]).relu()
            if stage < 4:
                x = functional.max_pool2d(x, 2)
        expected = x.mean((2, 3)) @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[row], expected, **CLOSE)


def test_vgg_of_28_pixels_is_that_of_32() -> None:
    config = registry.settings("model", "vgg16")()
    small, large = (Vgg(config, (3, side, side), 10) for side in (28, 32))
    assert small.shapes == large.shapes
    assert [sum(isinstance(s, MaxPool) for s in one.steps) for one in (small, large)] == [4, 5]


def test_groups_of_a_narrower_network() -> None:
    """Four groups of 8 channels, gcd(4, 6) = 2 of 6: as torch has them."""
    config = ConvNetConfig(channels=(8,), norm="group", groups=4, last_pool=False)
    network = ConvNet(config, SHAPE, CLASSES)
    for channels, groups in ((8, 4), (6, 2), (3, 1)):
        narrow = network.network(lambda _, channels=channels: channels)
        params, x = some_params(narrow), some(N, B, *SHAPE, seed=99)
        scores = narrow.logits(params, x)
        p = {name: block[1] for name, block in params.items()}
        seen = functional.conv2d(x[1], p["conv1.weight"], padding=1)
        seen = functional.group_norm(seen, groups, p["norm1.weight"], p["norm1.bias"]).relu()
        expected = seen.flatten(1) @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[1], expected, **CLOSE)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (64,)])
def test_shapes_of_images(shape: tuple[int, ...]) -> None:
    network = ConvNet(ConvNetConfig(channels=(2, 3)), shape, CLASSES)
    assert network.image == (1, 8, 8)
    expected = network.logits(some_params(network), some(N, B, 8, 8))
    scores = network.logits(some_params(network), some(N, B, 8, 8).view(N, B, *shape))
    torch.testing.assert_close(scores, expected, rtol=0, atol=0)


def test_norms_and_biases() -> None:
    """Norms are listed for FedBN; a convolution has a bias where no norm follows it."""
    for norm in ("batch", "group", "none"):
        network = ResNet(ResNetConfig(norm=norm), SHAPE, CLASSES)
        convolutions = [s for s in each_step(network.steps) if isinstance(s, Conv)]
        norms = [s for s in each_step(network.steps) if isinstance(s, Norm)]
        assert len(network.norms) == 2 * len(norms) == (0 if norm == "none" else 18)
        assert all(step.bias == (norm == "none") for step in convolutions)
        assert network.batch_norms == (norm == "batch")
        assert network.network(lambda c: c // 2).batch_norms == (norm == "batch")


@pytest.mark.parametrize("name", ["conv_net", "resnet", "vgg"])
def test_samples_that_are_no_images(name: str) -> None:
    model = registry.component("model", name)
    with pytest.raises(UserError, match=rf"'{name}' needs images, but .* shape \[65\]"):
        model(registry.settings("model", name)(), (65,), 10)


def test_too_small_images() -> None:
    with pytest.raises(UserError, match="images of 1x3 pixels reach a max-pooling"):
        ConvNet(ConvNetConfig(), (4, 12), 10)
    ConvNet(ConvNetConfig(last_pool=False), (4, 12), 10)
    assert ResNet(ResNetConfig(), (1, 1), 10).macs > 0


def test_a_width_for_each_stage() -> None:
    for config in (ResNetConfig, VggConfig):
        with pytest.raises(ValidationError, match="got 2 numbers for 3 stages"):
            config(blocks=(1, 1, 1), channels=(4, 8))
