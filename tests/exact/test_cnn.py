"""Convolutions: forward and backward against torch's own layers and autograd, against a NumPy
loop, in the dense and in the factored form; their place in FedRLR; sizes and what is refused.

Mutations that must fail: in `_beside_gradients` and `_patch_pairs`, the ReLU's gate left out, the
gate of the scores for that of the image; in `fold`, stride left out, height for width; in `unpool`,
the gradient at all equal numbers; in `patches`, another order of channel and pixel, the grey
shortcut for all; in `kernels` and `convolve_backward`, height and width exchanged; in `_features`,
the samples' parts in another order, the rows of x for the rows of the weights; `Layer.positions`
left out of `macs`; in `geometry`, one position less, no padding, height for width, another
fan-in; in the scenario's `layers`, another side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from twins import fedrlr as twin
from twins.setting import everyone, local_data

from otafl.algorithms.config import FedRLRConfig
from otafl.algorithms.fedrlr import FedRLR
from otafl.core.contracts import Batch, Blocks
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, LowRankMap, dense
from otafl.models import base, convolution
from otafl.models.base import Layer, LayeredModel, Model, cross_entropy
from otafl.models.cnn import Cnn
from otafl.models.config import CnnConfig
from otafl.models.geometry import Window
from otafl.scenario import load_scenario
from otafl.scenario.checks import layers

F64 = torch.float64
N, B, CLASSES = 3, 4, 5
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "three layers, colour, odd sizes": (
        {"channels": (3, 4, 2), "kernel": 3, "hidden": (7,)},
        (2, 9, 8),
    ),
    "flat grey, default kernel": ({"channels": (2, 3), "hidden": (6, 5)}, (64,)),
    "valid, strided, no pooling, no hidden": (
        {"channels": (3, 2), "kernel": 2, "stride": 2, "padding": "valid", "pool": 1, "hidden": ()},
        (9, 11),
    ),
    "strided, padded, left-over edge": (
        {"channels": (3, 4), "kernel": 3, "stride": 2, "pool": 2, "hidden": (4,)},
        (3, 17, 20),
    ),
    "a kernel of three": ({"channels": (4, 3), "kernel": 3, "hidden": (7,)}, (64,)),
    "one inner channel, pooling by three": (
        {"channels": (1, 3), "kernel": 3, "pool": 3, "padding": "valid"},
        (20, 17),
    ),
}
OF_CASES = pytest.mark.parametrize("case", CASES)


def cnn(case: str) -> Cnn:
    settings, shape = CASES[case]
    return Cnn(CnnConfig(**settings), shape, CLASSES)


def some_params(model: Model, rows: int = N) -> Blocks:
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(rows, *shape, generator=generator, dtype=F64) / 2
        for name, shape in model.shapes.items()
    }


def some_batch(case: str, weighted: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(N, B, *CASES[case][1], generator=generator, dtype=F64)
    y = torch.randint(0, CLASSES, (N, B), generator=generator)
    weight = None
    if weighted:
        weight = torch.rand(N, B, generator=generator, dtype=F64)
        weight /= weight.sum(1, keepdim=True)
    return Batch(x, y, weight)


def by_torch(case: str, weights: list[Tensor], biases: list[Tensor], x: Tensor) -> Tensor:
    """Scores [B, classes] of one row by torch's own layers; weights [k k C, out]."""
    settings, shape = CASES[case]
    config = CnnConfig(**settings)
    side = int(np.sqrt(shape[0]))
    c, h, w = {1: (1, side, side), 2: (1, *shape), 3: shape}[len(shape)]
    x = x.reshape(-1, c, h, w)
    count = len(config.channels)
    for weight, bias in zip(weights[:count], biases[:count], strict=True):
        kernel = weight.view(config.kernel, config.kernel, x.shape[1], -1).permute(3, 2, 0, 1)
        pad = (config.kernel - 1) // 2 if config.padding == "same" else 0
        x = functional.conv2d(x, kernel, bias, stride=config.stride, padding=pad)
        x = functional.max_pool2d(functional.relu(x), config.pool)
    x = x.permute(0, 2, 3, 1).flatten(1)
    for weight, bias in zip(weights[count:-1], biases[count:-1], strict=True):
        x = functional.relu(x @ weight + bias)
    return x @ weights[-1] + biases[-1]


def leaves(model: LayeredModel, params: Blocks, row: int) -> tuple[list[Tensor], list[Tensor]]:
    weights = [params[one.weight][row].clone().requires_grad_() for one in model.layers]
    return weights, [params[one.bias][row].clone().requires_grad_() for one in model.layers]


@OF_CASES
@pytest.mark.parametrize("weighted", [False, True])
def test_forward_and_backward_equal_torchs_layers_and_autograd(case: str, weighted: bool) -> None:
    """Scores, gradients, an SGD step, and the pairs, whose products are the same gradients."""
    model, batch = cnn(case), some_batch(case, weighted)
    params = some_params(model)
    before = [block.clone() for block in (*params.values(), batch.x)]
    loss, grads = model.gradients(params, batch)
    pair_loss, pairs = model.pairs(params, batch)
    logits = model.logits(params, batch.x)
    for block, old in zip((*params.values(), batch.x), before, strict=True):
        assert torch.equal(block, old)
    step = torch.tensor([0.1, 0.7, 0.0], dtype=F64)
    moved = {name: block.clone() for name, block in params.items()}
    torch.testing.assert_close(model.sgd_(moved, batch, step), loss, **CLOSE)
    torch.testing.assert_close(pair_loss, loss, **CLOSE)
    for row in range(N):
        weights, biases = leaves(model, params, row)
        scores = by_torch(case, weights, biases, batch.x[row])
        torch.testing.assert_close(logits[row], scores, **CLOSE)
        weight = None if batch.weight is None else batch.weight[row : row + 1]
        value = cross_entropy(scores[None], Batch(batch.x[:1], batch.y[row : row + 1], weight))
        torch.testing.assert_close(loss[row], value[0], **CLOSE)
        auto = torch.autograd.grad(value.sum(), weights + biases)
        count = len(model.layers)
        of_layers = zip(model.layers, pairs, auto[:count], auto[count:], strict=True)
        for layer, (x, g), by_weight, by_bias in of_layers:
            torch.testing.assert_close(grads[layer.weight][row], by_weight, **CLOSE)
            torch.testing.assert_close(grads[layer.bias][row], by_bias, **CLOSE)
            assert x.shape == (N, B * layer.positions, layer.inputs)
            assert g.shape == (N, B * layer.positions, layer.outputs)
            torch.testing.assert_close(x[row].mT @ g[row], by_weight, **CLOSE)
            torch.testing.assert_close(g[row].sum(0), by_bias, **CLOSE)
            for name, by in ((layer.weight, by_weight), (layer.bias, by_bias)):
                expected = params[name][row] - step[row] * by
                torch.testing.assert_close(moved[name][row], expected, **CLOSE)


def looped(
    image: NDArray[np.float64], weight: NDArray[np.float64], window: Window
) -> NDArray[np.float64]:
    """A convolution pixel by pixel, pooled: image [C, H, W], weight [k k C, out] -> [H', W',
    out]."""
    k, pad, size = window.kernel, window.padding, window.pool
    channels, height, width = image.shape
    high = (height + 2 * pad - k) // window.stride + 1
    wide = (width + 2 * pad - k) // window.stride + 1
    z = np.zeros((high, wide, weight.shape[1]))
    for i in range(high):
        for j in range(wide):
            number = 0
            for di in range(k):
                for dj in range(k):
                    for c in range(channels):
                        row, column = i * window.stride + di - pad, j * window.stride + dj - pad
                        if 0 <= row < height and 0 <= column < width:
                            z[i, j] += image[c, row, column] * weight[number]
                        number += 1
    blocks = z[: high // size * size, : wide // size * size]
    return blocks.reshape(high // size, size, wide // size, size, -1).max((1, 3))


@pytest.mark.parametrize(
    "window",
    [
        Window(2, 5, 6, 3, padding=1, pool=2),
        Window(1, 7, 5, 2, stride=2),
        Window(3, 6, 4, 4, pool=1),
    ],
)
def test_a_convolution_is_the_loop(window: Window) -> None:
    """Dense and in patches, rows and samples apart."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, window.channels, window.height, window.width, generator=generator)
    x = x.double()
    weight = torch.randn(2, window.inputs, 4, generator=generator, dtype=F64)
    z = convolution.convolve(convolution.beside(x, window), weight, weight[:, 0] * 0, window)
    grouped = convolution.features_beside(convolution.pool(z, window.pool)[0], 2)
    met = convolution.patches(convolution.images(x, window), 2, window)
    z = convolution.scores(met @ weight, window)
    patched = convolution.features(convolution.pool(z, window.pool)[0], 2)
    for row in range(2):
        for sample in range(3):
            expected = looped(x[row, sample].numpy(), weight[row].numpy(), window)
            assert expected.shape[:2] == window.pooled
            for got in (grouped, patched):
                np.testing.assert_allclose(got[row, sample], expected.ravel(), **CLOSE)


@OF_CASES
def test_fold_is_the_transpose_of_patches(case: str) -> None:
    """<patches(x), p> = <x, fold(p)>."""
    generator = torch.Generator().manual_seed(4)
    for layer in cnn(case).layers:
        if (window := layer.window) is None:
            continue
        shape = (2 * 3, window.channels, window.height, window.width)
        x = torch.randn(*shape, generator=generator, dtype=F64)
        made = convolution.patches(x, 2, window)
        p = torch.randn(made.shape, generator=generator, dtype=F64)
        there, back = (made * p).sum(), (x * convolution.fold(p, window)).sum()
        torch.testing.assert_close(there, back, rtol=1e-12, atol=0)


def test_equal_numbers_in_a_window_the_first_one_wins() -> None:
    """As torch has it: of a flat image with a positive bias, whose windows are all ties."""
    case = "flat grey, default kernel"
    model, batch = cnn(case), some_batch(case)
    params = some_params(model)
    for layer in model.layers[:2]:
        params[layer.bias].abs_()
    batch = Batch(torch.zeros_like(batch.x), batch.y, None)
    _, grads = model.gradients(params, batch)
    _, pairs = model.pairs(params, batch)
    for row in range(N):
        weights, biases = leaves(model, params, row)
        scores = by_torch(case, weights, biases, batch.x[row])
        auto = torch.autograd.grad(functional.cross_entropy(scores, batch.y[row]), weights)
        for layer, (x, g), by_weight in zip(model.layers, pairs, auto, strict=True):
            torch.testing.assert_close(grads[layer.weight][row], by_weight, **CLOSE)
            torch.testing.assert_close(x[row].mT @ g[row], by_weight, **CLOSE)


@OF_CASES
def test_rows_are_independent(case: str) -> None:
    """What the other rows hold, or that there are any, changes nothing."""
    model, batch = cnn(case), some_batch(case)
    params = some_params(model)
    loss, grads = model.gradients(params, batch)
    _, pairs = model.pairs(params, batch)
    alone = {name: block[1:2].clone() for name, block in params.items()}
    one = Batch(batch.x[1:2], batch.y[1:2], None)
    own_loss, own = model.gradients(alone, one)
    torch.testing.assert_close(own_loss, loss[1:2], **CLOSE)
    for name in params:
        torch.testing.assert_close(own[name], grads[name][1:2], **CLOSE)
    for (x, g), (own_x, own_g) in zip(pairs, model.pairs(alone, one)[1], strict=True):
        torch.testing.assert_close(own_x, x[1:2], **CLOSE)
        torch.testing.assert_close(own_g, g[1:2], **CLOSE)


def factored(model: LayeredModel, rank: int) -> tuple[dict[str, Any], Blocks]:
    """The same model with factored and with dense weights."""
    generator = torch.Generator().manual_seed(5)
    full = some_params(model)
    thin: dict[str, Any] = dict(full)
    for layer in model.layers:
        r = min(rank, layer.inputs, layer.outputs)
        u, v = (
            torch.linalg.qr(torch.randn(N, side, r, generator=generator, dtype=F64))[0]
            for side in (layer.inputs, layer.outputs)
        )
        s = torch.rand(N, r, generator=generator, dtype=F64) + 1.0
        point = LowRank(u, s, v)
        thin[layer.weight], full[layer.weight] = LowRankMap(point), dense(point)
    return thin, full


@OF_CASES
@pytest.mark.parametrize("weighted", [False, True])
def test_a_factored_convolution_is_the_dense_one(case: str, weighted: bool) -> None:
    """Scores, and every layer's gradient by way of thin products."""
    model, batch = cnn(case), some_batch(case, weighted)
    thin, full = factored(model, 2)
    torch.testing.assert_close(model.logits(thin, batch.x), model.logits(full, batch.x), **CLOSE)
    loss, pairs = model.pairs(thin, batch)
    dense_loss, grads = model.gradients(full, batch)
    torch.testing.assert_close(loss, dense_loss, **CLOSE)
    for index, (layer, (x, g)) in enumerate(zip(model.layers, pairs, strict=True)):
        acting = thin[layer.weight]
        u, _, v = acting.point
        # The first layer passes nothing further back, so its g V is not there yet.
        assert (acting.gv is None) == (index == 0)
        gv = g @ v if acting.gv is None else acting.gv
        gradient = grads[layer.weight]
        torch.testing.assert_close(x.mT @ gv, gradient @ v, **CLOSE)
        torch.testing.assert_close(g.mT @ acting.xu, gradient.mT @ u, **CLOSE)
        torch.testing.assert_close(g.sum(1), grads[layer.bias], **CLOSE)


@OF_CASES
def test_one_factored_layer_among_dense_ones(case: str) -> None:
    model, batch = cnn(case), some_batch(case)
    thin, full = factored(model, 2)
    expected = model.logits(full, batch.x)
    for layer in model.layers:
        mixed = {**full, layer.weight: thin[layer.weight]}
        torch.testing.assert_close(model.logits(mixed, batch.x), expected, **CLOSE)


@OF_CASES
@pytest.mark.parametrize("part", [1, 3, 10_000])
def test_shared_samples_and_a_few_at_a_time(
    case: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x [1, B, ...] is every row's; scores do not depend on how many are computed at once."""
    model, batch = cnn(case), some_batch(case)
    front = [layer for layer in model.layers if layer.window is not None]
    largest = max(layer.positions * layer.inputs for layer in front)
    plain, calls = convolution.pool, []
    for params in factored(model, 2):
        expected = model.logits(params, batch.x[:1].expand_as(batch.x))
        own = model.logits(params, batch.x)
        with monkeypatch.context() as patch:
            patch.setattr(base, "PATCHES_AT_ONCE", part * N * largest)
            patch.setattr(convolution, "pool", lambda *of: calls.append(0) or plain(*of))
            for x, right in ((batch.x[:1], expected), (batch.x, own)):
                calls.clear()
                torch.testing.assert_close(model.logits(params, x), right, **CLOSE)
                assert len(calls) == -(-B // part) * len(front)


@OF_CASES
def test_single_precision(case: str) -> None:
    model, batch = cnn(case), some_batch(case)
    params = some_params(model)
    _, expected = model.gradients(params, batch)
    single = {name: block.float() for name, block in params.items()}
    short = Batch(batch.x.float(), batch.y, None)
    for name, grad in model.gradients(single, short)[1].items():
        assert grad.dtype == torch.float32
        assert (grad - expected[name]).abs().max() <= 1e-4 * expected[name].abs().max()
    for layer, (x, g) in zip(model.layers, model.pairs(single, short)[1], strict=True):
        error = (x.mT @ g - expected[layer.weight]).abs().max()
        assert error <= 1e-4 * expected[layer.weight].abs().max()


@pytest.mark.parametrize("steps", [1, 3])
def test_fedrlrs_steps_are_the_dense_ones(steps: int) -> None:
    """Tangent steps and retractions at every layer of the devices' own models, a rank for each,
    against autograd's dense gradient, projected, and the SVD's best approximation."""
    case, devices = "a kernel of three", 2
    model = cnn(case)
    streams = Streams([3], [0], dtype=F64)
    config = FedRLRConfig(rank=(2, 3, 4, 2), inv_k_gradient=False)
    algorithm = FedRLR(config, model, devices)
    cohort = everyone(torch.full((1, devices), 1 / devices, dtype=F64))
    hyper = {
        name: torch.tensor([value], dtype=F64)
        for name, value in {"q": 2.0, "nu": 10.0, "c1": 0.3, "mu": 3.0}.items()
    }
    server, _ = algorithm.init(streams, hyper)
    start, _ = FedRLR(config, model, devices).init(Streams([4], [1], dtype=F64), hyper)
    own = {
        name: block.repeat(devices, *[1] * (block.dim() - 1)) for name, block in start.items()
    }  # Theta_k, another point than Theta_0
    data = local_data([[40, 50]], 64, CLASSES, streams, B, steps)
    thetas, biases = [], []
    eta, penalty = 0.2, 0.3
    for row in range(devices):
        theta = [dense(_point(start, i))[0] for i in range(4)]
        anchor = [dense(_point(server, i))[0] for i in range(4)]
        bias = [start[f"b{i}"][0] for i in range(4)]
        work = data.work(0, cohort)
        for step in range(steps):
            batch = work.batch(step)
            w = [one.clone().requires_grad_() for one in theta]
            b = [one.clone().requires_grad_() for one in bias]
            scores = by_torch(case, w, b, batch.x[row])
            grads = torch.autograd.grad(functional.cross_entropy(scores, batch.y[row]), w + b)
            for i, rank in enumerate((2, 3, 4, 2)):
                delta = eta * grads[i] + penalty * (theta[i] - anchor[i])
                u, _, v = twin.svd_r(theta[i].numpy(), rank)
                moved = theta[i].numpy() - twin.project(u, v, delta.numpy())
                theta[i] = torch.from_numpy(twin.nearest(moved, rank))
                pull = penalty * (bias[i] - server[f"b{i}"][0])
                bias[i] = bias[i] - eta * grads[4 + i] - pull
        thetas.append(theta)
        biases.append(bias)
    broadcast = algorithm.broadcast(server, cohort).rows(cohort, 0, devices)
    state, _, _ = algorithm.local(broadcast, own, cohort, data.work(0, cohort), hyper, streams)
    for i in range(4):
        moved = dense(_point(state, i))
        for row in range(devices):
            torch.testing.assert_close(moved[row], thetas[row][i], rtol=0, atol=1e-8)
            torch.testing.assert_close(state[f"b{i}"][row], biases[row][i], rtol=0, atol=1e-8)
            assert (moved[row] - dense(_point(start, i))[0]).abs().max() > 1e-3


def _point(blocks: Blocks, layer: int) -> LowRank:
    return LowRank(blocks[f"u{layer}"], blocks[f"s{layer}"], blocks[f"v{layer}"])


@OF_CASES
def test_multiplications_are_those_that_torch_counts(case: str) -> None:
    model, batch = cnn(case), some_batch(case)
    weights, biases = leaves(model, some_params(model), 0)
    with FlopCounterMode(display=False) as counter:
        by_torch(case, weights, biases, batch.x[0])
    assert counter.get_total_flops() == 2 * B * model.macs


@pytest.mark.parametrize(
    ("settings", "size", "macs", "sides"),
    [
        # LeNet-5 with max-pooling on 28x28: 24x24 and 8x8 positions.
        (
            {"channels": (6, 16), "padding": "valid", "hidden": (120, 84)},
            44_426,
            576 * 25 * 6 + 64 * 150 * 16 + 256 * 120 + 120 * 84 + 84 * 10,
            [(25, 6), (150, 16), (256, 120), (120, 84), (84, 10)],
        ),
        # McMahan et al. 2017, section 3, state the size.
        (
            {"channels": (32, 64), "hidden": (512,)},
            1_663_370,
            784 * 25 * 32 + 196 * 800 * 64 + 3136 * 512 + 512 * 10,
            [(25, 32), (800, 64), (3136, 512), (512, 10)],
        ),
    ],
)
def test_networks_of_the_literature(
    settings: dict[str, Any], size: int, macs: int, sides: list[tuple[int, int]]
) -> None:
    model = Cnn(CnnConfig(**settings), (784,), 10)
    assert (model.size, model.macs) == (size, macs)
    assert [(layer.inputs, layer.outputs) for layer in model.layers] == sides
    front = [layer for layer in model.layers if layer.window is not None]
    patches, images = (
        sum(layer.positions * getattr(layer, side) for layer in front)
        for side in ("inputs", "outputs")
    )
    assert model.kept_reals == patches + images
    tree = {"name": "x", "data": "mnist", "model": {"name": "cnn", **settings}}
    assert layers(load_scenario(tree)) == sides


def test_start() -> None:
    """Uniform in +-1/sqrt(fan_in), the fan-in of a convolution being what its window sees."""
    model = Cnn(CnnConfig(channels=(20, 30), hidden=(40,)), (3, 16, 16), 10)
    streams = Streams([4] * N, list(range(N)), dtype=F64)
    params = model.init(lambda name, shape: streams.uniform(f"init/{name}", 0, shape))
    for layer, fan_in in zip(model.layers, (75, 500, 480, 40), strict=True):
        assert layer.inputs == fan_in
        scaled = params[layer.weight] * fan_in**0.5
        assert 0.99 < scaled.abs().max() <= 1.0
        # Variance 1/3 of a uniform; 5 standard errors: level 1e-6.
        assert abs(scaled.square().mean() - 1 / 3) < 5 * (4 / 45 / scaled.numel()) ** 0.5
        assert (params[layer.bias] == 0).all()
    assert not torch.equal(params["weight0"][0], params["weight0"][1])


def test_convolutions_come_first() -> None:
    class Wrong(LayeredModel):
        def init(self, draw: Any) -> Blocks:
            return {}

    window = Window(1, 4, 4, 2)
    convolving = Layer("w1", "b1", 4, 2, window)
    for chain in ((convolving,), (Layer("w0", "b0", 16, 16), convolving, Layer("w2", "b2", 2, 2))):
        with pytest.raises(ValueError, match="convolutions come before the fully connected"):
            Wrong(chain)


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ({}, (65,), r"model.name: 'cnn' needs images, but .* has shape \[65\];"),
        ({}, (2, 2, 8, 8), r"model.name: 'cnn' needs images, but .* has shape \[2, 2, 8, 8\];"),
        (
            {"padding": "valid"},
            (64,),
            "model.kernel: got 5, but convolution 2 sees an image of only 2x2; .*padding: same",
        ),
        (
            {"channels": (2, 2, 2, 2)},
            (8, 30),
            "model.pool: got 2, but convolution 4 leaves an image of only 1x3; a smaller pool or",
        ),
    ],
)
def test_samples_that_are_no_images_or_too_small(
    settings: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Cnn(CnnConfig(**settings), shape, 10)


@pytest.mark.parametrize(
    ("model", "rank", "message"),
    [
        ({"padding": "valid"}, 4, "model.kernel: got 5, but convolution 2 sees an image of only"),
        ({"kernel": 4}, 4, "'same' needs a window with a middle pixel, and kernel is 4; kernel: 5"),
        ({}, [4, 33, 4, 4], r"algorithm.rank\[1\]: 33 .* its layer, 400x32; at most 32"),
        ({}, [4, 4, 4], r"for 4 layers \(25x16: 16, 400x32: 32, 128x128: 128, 128x10: 10\)"),
        ({}, 129, r"algorithm.rank: 129 is above .*; at most 128"),
    ],
)
def test_a_scenario_that_does_not_fit_is_refused(model: dict, rank: Any, message: str) -> None:
    algorithm = {"name": "fedrlr", "rank": rank}
    tree = {"name": "x", "data": "digits", "model": {"name": "cnn", **model}}
    with pytest.raises(UserError, match=message):
        load_scenario({**tree, "algorithm": algorithm})
