"""Networks of fewer channels, as HeteroFL trains them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.training_scores import score_training

from otafl.algorithms.submodels.narrow_networks import HeteroFL
from otafl.algorithms.submodels.width_slices import index_window, make_width_fn, slice_params
from otafl.core.contracts import Workload
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.layer_contract import Axis, Layer
from otafl.models.layer_lists import Residual
from otafl.models.layers import Conv, Linear, MaxPool, MeanPool, Norm, Relu
from otafl.models.network import Network
from otafl.models.resnet import ResNet
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact


def convolutional() -> Network:
    """Of 1 x 4 x 4 pixels: a normalised convolution of 8 channels, flattened by linear layers."""
    conv = Conv("a", 1, 8, cut=False), Norm("n", 8), Relu()
    return Network((1, 4, 4), (*conv, Linear("b", 8, 6, 16), Relu(), Linear("c", 6, 3, last=True)))


def test_scaler_before_normalisation_changes_little() -> None:
    """By its epsilon alone, in training alone; without a normalisation it changes all."""
    config = HeteroFL.Settings(levels=(0.5, 0.125))
    sizes = HeteroFL(config, convolutional(), 5).submodels
    assert [size.scale for size in sizes] == [1.0, 0.25]
    plain = [size.replace(scale=1.0) for size in sizes]
    streams = Streams([1, 2], [0, 0])
    params = sizes[1].init(lambda name, shape: streams.draw_uniform(name, 0, shape).clone())
    x = streams.draw_normal("x", 0, (32, 16))
    scaled, unscaled = (score_training(n[1], params, x) for n in (sizes, plain))
    difference = float((scaled - unscaled).abs().max())
    assert 0 < difference < 2e-4
    assert torch.equal(sizes[1].logits(params, x), plain[1].logits(params, x))
    steps = (
        Conv("a", 1, 8, has_bias=True, cut=False),
        Relu(),
        MeanPool(),
        Linear("c", 8, 3, last=True),
    )
    bare = HeteroFL(config, Network((1, 4, 4), steps), 5).submodels[1]
    params = bare.init(lambda name, shape: streams.draw_uniform(name, 0, shape).clone())
    ratio = score_training(bare, params, x) / bare.logits(params, x)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 4.0))


@pytest.mark.parametrize(
    ("config", "classes", "ratio", "rule", "parameters", "macs"),
    [
        (ResNet.Settings(name="resnet18"), 10, 0.62, "round", 4_293_347, 214_519_218),
        (ResNet.Settings(name="resnet18"), 10, 0.5, "round", 2_797_610, 139_299_328),
        (ResNet.Settings(name="resnet18"), 10, 0.35, "round", 1_373_160, 67_991_534),
        (ResNet.Settings(name="resnet34"), 100, 0.64, "round", 8_769_303, 476_257_312),
        (ResNet.Settings(name="resnet34"), 100, 0.5, "round", 5_349_636, 290_317_312),
        (ResNet.Settings(name="resnet34"), 100, 0.4, "round", 3_423_974, 186_315_556),
        (ResNet.Settings(name="resnet18"), 10, 0.35, "ceil", 1_386_000, None),
        (ResNet.Settings(name="resnet34"), 100, 0.4, "ceil", 3_455_000, None),
    ],
)
def test_sizes_of_slim_networks(
    config: ResNet.Settings,
    classes: int,
    ratio: float,
    rule: str,
    parameters: int,
    macs: int | None,
) -> None:
    """FedHM's tables print 4.29, 2.80 and 1.37 million, 8.77, 5.35 and 3.42."""
    settings = HeteroFL.Settings(levels=(1.0, ratio), width_rule=rule)  # type: ignore[arg-type]
    level = HeteroFL(settings, ResNet(config, (3, 32, 32), classes), 5).levels[1]
    if macs is None:
        assert round(level.num_params, -3) == parameters
        return
    assert (level.num_params, level.macs, level.ratio) == (parameters, macs, ratio)
    load = Workload(1, 7, np.array([50.0]))
    assert level.flops_fn(load).item() == pytest.approx(6.0 * 7 * macs, rel=0.1)  # and elementwise


def test_mistakes() -> None:
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (6,), 3)
    with pytest.raises(UserError, match="a SoftmaxRegression has one; use model: mlp, cnn"):
        HeteroFL(HeteroFL.Settings(), model, 5)


def channels_of(wide: Axis, narrow: Axis, offset: int) -> list[int]:
    """Where the entries of the narrow side lie on the wide one."""
    networks = [
        SimpleNamespace(axes={"a": (axis,)}, shapes={"a": (axis.channels * axis.repeat,)})
        for axis in (wide, narrow)
    ]
    rows = torch.arange(1)
    place = index_window(*networks, "a", rows, offset)[1]  # type: ignore[arg-type]
    return place.tolist()


def test_windows_by_hand() -> None:
    assert channels_of(Axis(4), Axis(3), 0) == [0, 1, 2]
    assert channels_of(Axis(4), Axis(3), 1) == [1, 2, 3]
    assert channels_of(Axis(4), Axis(3), 2) == [2, 3, 0]
    assert channels_of(Axis(4), Axis(3), 3) == [3, 0, 1]
    assert channels_of(Axis(4), Axis(3), 6) == [2, 3, 0]
    assert channels_of(Axis(4), Axis(4), 2) == [0, 1, 2, 3]  # all of them, in their order
    assert channels_of(Axis(3, 2), Axis(2, 2), 1) == [2, 3, 4, 5]
    assert channels_of(Axis(3, 2), Axis(2, 2), 2) == [4, 5, 0, 1]  # two pixels a channel


def residual() -> Network:
    """Convolutions with normalisation, blocks with and without a shortcut, flattened pixels."""

    def block(name: str, inputs: int, outputs: int, shortcut: tuple[Layer, ...]) -> Residual:
        body = (
            Conv(f"{name}1", inputs, outputs),
            Norm(f"{name}n1", outputs),
            Relu(),
            Conv(f"{name}2", outputs, outputs),
            Norm(f"{name}n2", outputs),
        )
        return Residual(body, shortcut)

    steps = (
        Conv("a", 2, 4, has_bias=True, cut=False),
        Relu(0.1),
        block("b", 4, 4, ()),
        Relu(),
        block("c", 4, 6, (Conv("s", 4, 6, 1, padding=0),)),
        MaxPool(2),
        Linear("d", 6, 5, repeat=4),
        Relu(),
        Linear("e", 5, 3, last=True),
    )
    return Network((2, 4, 4), steps)


def pooled() -> Network:
    steps = (Conv("a", 2, 7, cut=False), Norm("n", 7), Relu(), Conv("b", 7, 5), Relu())
    return Network((2, 4, 4), (*steps, MeanPool(), Linear("c", 5, 3, last=True)))


@pytest.mark.parametrize("wide", [residual(), pooled()], ids=["residual", "pooled"])
@pytest.mark.parametrize("offset", [0, 7])
def test_a_slice_among_zeros_is_the_narrow_network(wide: Network, offset: int) -> None:
    """The wide network whose other parameters are 0 scores as the narrow one, so windows agree
    from layer to layer, over blocks and over flattened pixels."""
    streams = Streams([1, 2], [0, 0], dtype=torch.float64)
    narrow = wide.build_network(make_width_fn(0.5, "ceil"))
    own = {
        name: streams.draw_normal(name, 0, shape).clone() for name, shape in narrow.shapes.items()
    }
    rows = torch.tensor([0, 1])
    whole = {name: own[name].new_zeros(2, *shape) for name, shape in wide.shapes.items()}
    for name, block in own.items():
        whole[name][index_window(wide, narrow, name, rows, offset)] = block
    x = streams.draw_normal("x", 0, (6, 32))
    torch.testing.assert_close(wide.logits(whole, x), narrow.logits(own, x))
    back = slice_params(wide, narrow, whole, rows, offset)
    assert all(torch.equal(back[name], own[name]) for name in own)
    assert sum(int(b.count_nonzero()) for b in whole.values()) == 2 * narrow.num_params
