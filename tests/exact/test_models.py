"""Models: the written-out backward pass against autograd, factored weights against dense ones,
a user's module against the same network written out.

Mutations that must fail: in `pairs`, the ReLU's gate left out or taken from the wrong layer, the
transposed weight for the weight; in `_cross_entropy_gradient`, no -1 at the label, no 1/B, the
sample weights ignored in g or in the loss; in `sgd_`, the bias by the mean over samples, the step
applied twice; in `LowRankMap`, s left out on one side; `ModuleModel`: buffers accepted, one row's
parameters for all rows; the slope of a leaky ReLU left out of the forward or of the backward pass,
in the perceptron, the scores or the convolutions; uniform biases in the range of another layer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins.network import gradients as looped_gradients
from twins.setting import minibatch, mlp

from otafl.core.contracts import Batch, Blocks
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, LowRankMap, dense
from otafl.models.base import LayeredModel, Model, cross_entropy, flatten, unflatten
from otafl.models.cnn import Cnn
from otafl.models.config import CnnConfig, MlpConfig, SoftmaxRegressionConfig
from otafl.models.mlp import Mlp
from otafl.models.module import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression

F64 = torch.float64
N, B, WIDTHS = 3, 5, (6, 8, 7, 4)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


def uniform(name: str, shape: tuple[int, ...]) -> Tensor:
    return Streams([4] * N, list(range(N)), dtype=F64).uniform(f"init/{name}", 0, shape)


def models() -> list[LayeredModel]:
    regression = SoftmaxRegression(SoftmaxRegressionConfig(), (WIDTHS[0],), WIDTHS[-1])
    return [mlp(WIDTHS), mlp((6, 3, 4)), regression]


def leaky(slope: float, bias_start: Any = "zero") -> Mlp:
    config = MlpConfig(
        hidden=WIDTHS[1:-1], activation="leaky_relu", leaky_slope=slope, bias_start=bias_start
    )
    return Mlp(config, (WIDTHS[0],), WIDTHS[-1])


def some_params(model: Model) -> Blocks:
    """Standard normal over sqrt(3), biases too."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(N, *shape, generator=generator, dtype=F64) / 3**0.5
        for name, shape in model.shapes.items()
    }


def some_batch(weighted: bool) -> Batch:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(N, B, WIDTHS[0], generator=generator, dtype=F64)
    y = torch.randint(0, WIDTHS[-1], (N, B), generator=generator)
    weight = None
    if weighted:
        weight = torch.rand(N, B, generator=generator, dtype=F64)
        weight[1, 3:] = 0.0
        weight /= weight.sum(1, keepdim=True)
    return Batch(x, y, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("index", range(3))
def test_backward_equals_autograd_and_the_loop(index: int, weighted: bool) -> None:
    model, batch = models()[index], some_batch(weighted)
    params = some_params(model)
    before = [block.clone() for block in (*params.values(), batch.x)]
    loss, grads = model.gradients(params, batch)
    for block, old in zip((*params.values(), batch.x), before, strict=True):
        assert torch.equal(block, old)
    auto_loss, auto = Model.gradients(model, params, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    torch.testing.assert_close(loss, cross_entropy(model.logits(params, batch.x), batch), **CLOSE)
    assert set(grads) == set(auto) == set(params)
    for name in params:
        torch.testing.assert_close(grads[name], auto[name], **CLOSE)
    for row in range(N):
        weights = [params[layer.weight][row].numpy() for layer in model.layers]
        biases = [params[layer.bias][row].numpy() for layer in model.layers]
        value, by_w, by_b = looped_gradients(weights, biases, minibatch(batch, row))
        assert float(loss[row]) == pytest.approx(value, abs=1e-12)
        for layer, w, b in zip(model.layers, by_w, by_b, strict=True):
            np.testing.assert_allclose(grads[layer.weight][row], w, **CLOSE)
            np.testing.assert_allclose(grads[layer.bias][row], b, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("index", range(3))
def test_sgd_is_a_step_along_the_gradient(index: int, weighted: bool) -> None:
    model, batch = models()[index], some_batch(weighted)
    params = some_params(model)
    step = torch.tensor([0.1, 0.7, 0.0], dtype=F64)
    loss, grads = Model.gradients(model, params, batch)
    for way in (type(model).sgd_, Model.sgd_):
        moved = {name: block.clone() for name, block in params.items()}
        torch.testing.assert_close(way(model, moved, batch, step), loss, **CLOSE)
        for name, block in params.items():
            by = step.view(-1, *[1] * (block.dim() - 1)) * grads[name]
            torch.testing.assert_close(moved[name], block - by, **CLOSE)


def factored(model: LayeredModel, rank: int) -> tuple[dict[str, object], Blocks]:
    """The same model with factored and with dense weights."""
    generator = torch.Generator().manual_seed(3)
    thin: dict[str, object] = {}
    full = some_params(model)
    for layer in model.layers:
        u, v = (
            torch.linalg.qr(torch.randn(N, side, rank, generator=generator, dtype=F64))[0]
            for side in (layer.inputs, layer.outputs)
        )
        s = torch.rand(N, rank, generator=generator, dtype=F64) + 1.0
        point = LowRank(u, s, v)
        thin[layer.weight], thin[layer.bias] = LowRankMap(point), full[layer.bias]
        full[layer.weight] = dense(point)
    return thin, full


@pytest.mark.parametrize("weighted", [False, True])
def test_factored_weights_give_the_dense_gradient_in_thin_products(weighted: bool) -> None:
    """Also fact 6 of FedRLR: G V and G^T U come without a dense gradient, at every layer."""
    model, batch = mlp(WIDTHS), some_batch(weighted)
    thin, full = factored(model, 3)
    loss, pairs = model.pairs(thin, batch)
    auto_loss, auto = Model.gradients(model, full, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    torch.testing.assert_close(model.logits(thin, batch.x), model.logits(full, batch.x), **CLOSE)
    for index, (layer, (x, g)) in enumerate(zip(model.layers, pairs, strict=True)):
        acting = thin[layer.weight]
        assert isinstance(acting, LowRankMap)
        u, _, v = acting.point
        assert acting.xu is not None
        # The first layer passes nothing further back, so its g V is not there yet.
        assert (acting.gv is None) == (index == 0)
        gv = g @ v if acting.gv is None else acting.gv
        gradient = auto[layer.weight]
        torch.testing.assert_close(x.mT @ g, gradient, **CLOSE)
        torch.testing.assert_close(x.mT @ gv, gradient @ v, **CLOSE)
        torch.testing.assert_close(g.mT @ acting.xu, gradient.mT @ u, **CLOSE)
        torch.testing.assert_close(g.sum(1), auto[layer.bias], **CLOSE)


def test_shared_samples_and_samples_of_any_shape() -> None:
    """x [1, B, ...] is every row's, and an image is a long vector."""
    model, batch = mlp(WIDTHS), some_batch(False)
    params = some_params(model)
    shared = batch.x[:1]
    expected = model.logits(params, shared.expand(N, -1, -1))
    torch.testing.assert_close(model.logits(params, shared), expected, **CLOSE)
    images = batch.x.view(N, B, 1, 2, 3)
    torch.testing.assert_close(model.logits(params, images), model.logits(params, batch.x), **CLOSE)
    loss, grads = model.gradients(params, Batch(images, batch.y, None))
    flat_loss, flat = model.gradients(params, batch)
    assert torch.equal(loss, flat_loss)
    assert all(torch.equal(grads[name], flat[name]) for name in flat)


def test_starts() -> None:
    """The perceptron: +-1/sqrt(fan_in), a start of its own for each trial, biases zero; softmax
    regression: zero."""
    model = mlp((400, 100, 10))
    params = model.init(uniform)
    for layer in model.layers:
        scaled = params[layer.weight] * layer.inputs**0.5
        assert scaled.shape == (N, layer.inputs, layer.outputs)
        assert scaled.abs().max() <= 1.0
        assert scaled.abs().max() > 0.99
        # Variance 1/3 of a uniform; 5 standard errors over 3,000 numbers or more: level 1e-6.
        count = scaled.numel()
        assert abs(scaled.square().mean() - 1 / 3) < 5 * (4 / 45 / count) ** 0.5
        assert (params[layer.bias] == 0).all()
    assert not torch.equal(params["weight0"][0], params["weight0"][1])
    regression = models()[2]
    assert all((block == 0).all() for block in regression.init(uniform).values())
    assert regression.shapes == {"weight0": (6, 4), "bias0": (4,)}


def test_uniform_starts_are_pytorchs() -> None:
    """Weights and biases uniform in +-1/sqrt(fan_in), as torch.nn.Linear starts both."""
    model = Mlp(MlpConfig(hidden=(100,), bias_start="uniform"), (400,), 50)
    regression = SoftmaxRegression(SoftmaxRegressionConfig(start="uniform"), (400,), 50)
    cnn = Cnn(CnnConfig(channels=(60,), bias_start="uniform"), (28, 28), 50)
    for one in (model, regression, cnn):
        params = one.init(uniform)
        for layer in one.layers:
            for block in (params[layer.weight], params[layer.bias]):
                scaled = block * layer.inputs**0.5
                assert 0.9 < scaled.abs().max() <= 1.0
                assert abs(scaled.mean()) < 5 * (1 / 3 / scaled.numel()) ** 0.5
                assert not torch.equal(scaled[0], scaled[1])
    linear = torch.nn.Linear(400, 50)
    assert 0.9 < linear.bias.abs().max() * 20 <= 1.0
    same = mlp((400, 100, 50)).init(uniform)
    assert torch.equal(same["weight0"], model.init(uniform)["weight0"])


@pytest.mark.parametrize("weighted", [False, True])
def test_leaky_relu_against_autograd_and_torchs(weighted: bool) -> None:
    model, batch = leaky(0.1), some_batch(weighted)
    params = some_params(model)
    x = batch.x
    for i in range(len(WIDTHS) - 1):
        x = torch.bmm(x, params[f"weight{i}"]) + params[f"bias{i}"][:, None]
        x = torch.nn.functional.leaky_relu(x, 0.1) if i < len(WIDTHS) - 2 else x
    torch.testing.assert_close(model.logits(params, batch.x), x, **CLOSE)
    loss, grads = model.gradients(params, batch)
    auto_loss, auto = Model.gradients(model, params, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    step = torch.tensor([0.1, 0.7, 0.0], dtype=F64)
    moved = {name: block.clone() for name, block in params.items()}
    torch.testing.assert_close(model.sgd_(moved, batch, step), loss, **CLOSE)
    for name in params:
        torch.testing.assert_close(grads[name], auto[name], **CLOSE)
        by = step.view(-1, *[1] * (auto[name].dim() - 1)) * auto[name]
        torch.testing.assert_close(moved[name], params[name] - by, **CLOSE)
    straight = mlp(WIDTHS)
    assert not torch.allclose(straight.gradients(params, batch)[1]["weight0"], grads["weight0"])


def test_leaky_relu_of_factored_weights() -> None:
    model, batch = leaky(0.3), some_batch(True)
    thin, full = factored(model, 3)
    loss, pairs = model.pairs(thin, batch)
    auto_loss, auto = Model.gradients(model, full, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    for layer, (x, g) in zip(model.layers, pairs, strict=True):
        torch.testing.assert_close(x.mT @ g, auto[layer.weight], **CLOSE)


def test_leaky_relu_of_convolutions() -> None:
    """Both ways of computing them: with dense weights, and patch by patch."""
    config = CnnConfig(channels=(2, 3), kernel=3, hidden=(5,), activation="leaky_relu")
    model = Cnn(config, (1, 8, 8), WIDTHS[-1])
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, B, 1, 8, 8, generator=generator, dtype=F64)
    batch = Batch(x, some_batch(False).y, None)
    params = some_params(model)
    loss, grads = model.gradients(params, batch)
    auto_loss, auto = Model.gradients(model, params, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    for name in params:
        torch.testing.assert_close(grads[name], auto[name], **CLOSE)
    pair_loss, pairs = model.pairs(params, batch)
    torch.testing.assert_close(pair_loss, loss, **CLOSE)
    for layer, (met, g) in zip(model.layers, pairs, strict=True):
        torch.testing.assert_close(met.mT @ g, grads[layer.weight], **CLOSE)
    image = x[0]
    for i in range(2):
        kernel = params[f"weight{i}"][0].view(3, 3, -1, (2, 3)[i]).permute(3, 2, 0, 1)
        z = torch.nn.functional.conv2d(image, kernel, params[f"bias{i}"][0], padding=1)
        image = torch.nn.functional.max_pool2d(torch.nn.functional.leaky_relu(z, 0.1), 2)
    hidden = image.permute(0, 2, 3, 1).flatten(1) @ params["weight2"][0] + params["bias2"][0]
    hidden = torch.nn.functional.leaky_relu(hidden, 0.1)
    scores = hidden @ params["weight3"][0] + params["bias3"][0]
    torch.testing.assert_close(model.logits(params, x)[0], scores, **CLOSE)


def test_relu_ignores_the_slope() -> None:
    batch = some_batch(False)
    one = Mlp(MlpConfig(hidden=WIDTHS[1:-1], leaky_slope=0.4), (WIDTHS[0],), WIDTHS[-1])
    params = some_params(one)
    loss, grads = one.gradients(params, batch)
    same_loss, same = mlp(WIDTHS).gradients(params, batch)
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(grads[name], same[name]) for name in grads)


def test_counts_of_cifarnet() -> None:
    """3-6-16 convolutions of 5x5 without padding, 400-120-84-10: 62,006 parameters."""
    config = CnnConfig(channels=(6, 16), padding="valid", hidden=(120, 84))
    model = Cnn(config, (3, 32, 32), 10)
    assert [layer.inputs for layer in model.layers] == [75, 150, 400, 120, 84]
    assert model.size == 456 + 2416 + 48_120 + 10_164 + 850 == 62_006


def test_counts() -> None:
    """784-256-256-10: 268,800 weights, 522 biases; three passes of two operations a MAC."""
    model = mlp((784, 256, 256, 10))
    assert model.macs == 268_800
    assert model.size == 268_800 + 522
    assert model.training_flops(6) == 6 * 268_800 * 6


def test_flatten_and_back() -> None:
    blocks = some_params(mlp(WIDTHS))
    shapes = {name: tuple(block.shape[1:]) for name, block in blocks.items()}
    flat = flatten(blocks)
    back = unflatten(flat, shapes)
    assert list(back) == list(blocks)
    assert all(torch.equal(back[name], block) for name, block in blocks.items())
    back["bias1"].fill_(7.0)
    assert (flat == 7.0).sum() == back["bias1"].numel()


def sequential() -> torch.nn.Sequential:
    module = torch.nn.Sequential()
    for i, (m, n) in enumerate(pairwise(WIDTHS)):
        if i:
            module.append(torch.nn.ReLU())
        module.append(torch.nn.Linear(m, n))
    return module.double()


def as_module(params: Blocks) -> Blocks:
    """Parameters of the perceptron under a Sequential's names; its weights are transposed."""
    out = {}
    for i in range(len(WIDTHS) - 1):
        out[f"{2 * i}.weight"] = params[f"weight{i}"].mT.contiguous()
        out[f"{2 * i}.bias"] = params[f"bias{i}"]
    return out


@pytest.mark.parametrize("weighted", [False, True])
def test_module_is_the_same_network(weighted: bool) -> None:
    model = mlp(WIDTHS)
    module = ModuleModel(sequential(), (WIDTHS[0],), WIDTHS[-1])
    params, batch = some_params(model), some_batch(weighted)
    own = as_module(params)
    assert {name: tuple(b.shape[1:]) for name, b in own.items()} == module.shapes
    assert (module.macs, module.size) == (model.macs, model.size)
    expected = model.logits(params, batch.x)
    torch.testing.assert_close(module.logits(own, batch.x), expected, **CLOSE)
    shared = model.logits(params, batch.x[:1])
    torch.testing.assert_close(module.logits(own, batch.x[:1]), shared, **CLOSE)
    loss, grads = model.gradients(params, batch)
    module_loss, module_grads = module.gradients(own, batch)
    torch.testing.assert_close(module_loss, loss, **CLOSE)
    for name, grad in as_module(grads).items():
        torch.testing.assert_close(module_grads[name], grad, **CLOSE)


def test_module_start() -> None:
    """Matrices uniform in +-1/sqrt(fan_in), trial by trial; norm layers as they are; biases 0."""
    source = torch.nn.Sequential(torch.nn.Linear(100, 6), torch.nn.LayerNorm(6)).double()
    start = ModuleModel(source, (100,), 6).init(uniform)
    weight = start["0.weight"]
    assert weight.shape == (N, 6, 100)
    assert 0.099 < weight.abs().max() <= 0.1
    assert not torch.equal(weight[0], weight[1])
    for name, value in {"0.bias": 0.0, "1.weight": 1.0, "1.bias": 0.0}.items():
        assert torch.equal(start[name], torch.full((N, 6), value, dtype=torch.float64))


def test_module_with_buffers_is_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(UserError, match=r"buffer '1.running_mean'.*GroupNorm"):
        ModuleModel(module, (6,), 4)


def test_module_of_the_wrong_number_of_scores_is_refused() -> None:
    with pytest.raises(UserError, match=r"shape \[1, 4\] for one sample; \[1, 9\] would do"):
        ModuleModel(torch.nn.Linear(6, 4), (6,), 9)


def test_a_modules_start_is_the_streams_not_the_modules() -> None:
    """Two instances of a module, which torch's global generator starts differently, are the same
    model; norm layers keep their ones and biases start at zero."""

    def start() -> Blocks:
        layers = torch.nn.Linear(6, 4), torch.nn.GroupNorm(2, 4), torch.nn.Linear(4, 3)
        model = ModuleModel(torch.nn.Sequential(*layers), (6,), 3)
        streams = Streams([1], [0])
        return model.init(lambda name, shape: streams.uniform(f"init/{name}", 0, shape))

    first, second = start(), start()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert first["1.weight"].eq(1.0).all()
    assert first["0.bias"].eq(0.0).all()
    assert first["0.weight"].std() > 0.1
