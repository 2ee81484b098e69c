"""Convolutional networks: forward and backward against torch's own layers and autograd, in the
dense and in the factored form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.layered_bench import factorise
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models import LayeredModel, Model, layered
from otafl.models.cnn import Cnn
from otafl.models.linear_layer import LEAKY_SLOPE

pytestmark = pytest.mark.exact

F64 = torch.float64
N, B, CLASSES = 3, 4, 5
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "three layers, colour, odd sizes": (
        {"channels": (3, 4, 2), "kernel": 3, "hidden": (7,)},
        (2, 9, 8),
    ),
    "flat grey, default kernel": (
        {"channels": (2, 3), "hidden": (6, 5), "activation": "leaky_relu"},
        (64,),
    ),
    "valid, strided, no pooling, no hidden": (
        {"channels": (3, 2), "kernel": 2, "stride": 2, "padding": "valid", "pool": 1, "hidden": ()},
        (9, 11),
    ),
    "strided, padded, left-over edge": (
        {"channels": (3, 4), "kernel": 3, "stride": 2, "pool": 2, "hidden": (4,)},
        (3, 17, 20),
    ),
}
OF_CASES = pytest.mark.parametrize("case", CASES)


def make_cnn(case: str) -> Cnn:
    """The network of a case."""
    keys, shape = CASES[case]
    return Cnn(Cnn.Settings(**keys), shape, CLASSES)


def draw_params(model: Model, rows: int = N) -> Tensors:
    """Normal, of deviation one half."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(rows, *shape, generator=generator, dtype=F64) / 2
        for name, shape in model.shapes.items()
    }


def draw_batch(case: str, weighted: bool = False) -> Batch:
    """Images of a case."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(N, B, *CASES[case][1], generator=generator, dtype=F64)
    y = torch.randint(0, CLASSES, (N, B), generator=generator)
    weight = None
    if weighted:
        weight = torch.rand(N, B, generator=generator, dtype=F64)
        weight /= weight.sum(1, keepdim=True)
    return Batch(x, y, weight)


def compute_torch_scores(
    case: str, weights: list[Tensor], biases: list[Tensor], x: Tensor
) -> Tensor:
    """Scores [B, classes] of one row by torch's own layers; weights [k k C, out]."""
    keys, shape = CASES[case]
    settings = Cnn.Settings(**keys)
    side = int(np.sqrt(shape[0]))
    c, h, w = {1: (1, side, side), 2: (1, *shape), 3: shape}[len(shape)]
    x = x.reshape(-1, c, h, w)
    slope = LEAKY_SLOPE if settings.activation == "leaky_relu" else 0.0
    count = len(settings.channels)
    for weight, bias in zip(weights[:count], biases[:count], strict=True):
        kernel = weight.view(settings.kernel, settings.kernel, x.shape[1], -1).permute(3, 2, 0, 1)
        pad = (settings.kernel - 1) // 2 if settings.padding == "same" else 0
        x = functional.conv2d(x, kernel, bias, stride=settings.stride, padding=pad)
        x = functional.max_pool2d(functional.leaky_relu(x, slope), settings.pool)
    x = x.permute(0, 2, 3, 1).flatten(1)
    for weight, bias in zip(weights[count:-1], biases[count:-1], strict=True):
        x = functional.leaky_relu(x @ weight + bias, slope)
    return x @ weights[-1] + biases[-1]


def make_leaves(
    model: LayeredModel, params: Tensors, row: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases of a row, for autograd."""
    weights = [params[one.weight][row].clone().requires_grad_() for one in model.layers]
    return weights, [params[one.bias][row].clone().requires_grad_() for one in model.layers]


@OF_CASES
def test_forward_and_backward_equal_torchs_layers_and_autograd(case: str) -> None:
    """Scores, gradients, an SGD step, and the pairs, whose products are the same gradients."""
    model, batch = make_cnn(case), draw_batch(case, weighted=True)
    params = draw_params(model)
    before = [block.clone() for block in (*params.values(), batch.x)]
    loss, grads = model.compute_gradients(params, batch)
    pair_loss, pairs = model.compute_pairs(params, batch)
    logits = model.logits(params, batch.x)
    for block, old in zip((*params.values(), batch.x), before, strict=True):
        assert torch.equal(block, old)
    step = torch.tensor([0.1, 0.7, 0.0], dtype=F64)
    moved = {name: block.clone() for name, block in params.items()}
    torch.testing.assert_close(model.take_sgd_step_(moved, batch, step), loss, **CLOSE)
    torch.testing.assert_close(pair_loss, loss, **CLOSE)
    for row in range(N):
        weights, biases = make_leaves(model, params, row)
        scores = compute_torch_scores(case, weights, biases, batch.x[row])
        torch.testing.assert_close(logits[row], scores, **CLOSE)
        weight = None if batch.weight is None else batch.weight[row : row + 1]
        value = CrossEntropy().compute_mean(
            scores[None], Batch(batch.x[:1], batch.y[row : row + 1], weight)
        )
        torch.testing.assert_close(loss[row], value[0], **CLOSE)
        auto = torch.autograd.grad(value.sum(), weights + biases)
        count = len(model.layers)
        of_layers = zip(model.layers, pairs, auto[:count], auto[count:], strict=True)
        for layer, (x, g), by_weight, by_bias in of_layers:
            torch.testing.assert_close(grads[layer.weight][row], by_weight, **CLOSE)
            torch.testing.assert_close(grads[layer.bias][row], by_bias, **CLOSE)
            torch.testing.assert_close(x[row].mT @ g[row], by_weight, **CLOSE)
            torch.testing.assert_close(g[row].sum(0), by_bias, **CLOSE)
            for name, by in ((layer.weight, by_weight), (layer.bias, by_bias)):
                expected = params[name][row] - step[row] * by
                torch.testing.assert_close(moved[name][row], expected, **CLOSE)


@OF_CASES
def test_a_factored_convolution_is_the_dense_one(case: str) -> None:
    """Scores, and every layer's gradient by way of thin products."""
    model, batch = make_cnn(case), draw_batch(case)
    thin, full = factorise(model, draw_params(model), 2, 5)
    torch.testing.assert_close(model.logits(thin, batch.x), model.logits(full, batch.x), **CLOSE)
    loss, pairs = model.compute_pairs(thin, batch)
    dense_loss, grads = model.compute_gradients(full, batch)
    torch.testing.assert_close(loss, dense_loss, **CLOSE)
    for layer, (x, g) in zip(model.layers, pairs, strict=True):
        acting = thin[layer.weight]
        u, _, v = acting.point
        gv = g @ v if acting.gv is None else acting.gv
        gradient = grads[layer.weight]
        torch.testing.assert_close(x.mT @ gv, gradient @ v, **CLOSE)
        torch.testing.assert_close(g.mT @ acting.xu, gradient.mT @ u, **CLOSE)
        torch.testing.assert_close(g.sum(1), grads[layer.bias], **CLOSE)


def test_shared_samples_and_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """x [1, B, ...] is every row's; scores do not depend on how many are computed at once."""
    case = "three layers, colour, odd sizes"
    model, batch = make_cnn(case), draw_batch(case)
    front = model.layers[:3]
    largest = max(model.positions[layer.weight] * layer.inputs for layer in front)
    plain, calls = functional.conv2d, []
    for params in factorise(model, draw_params(model), 2, 5):
        expected = model.logits(params, batch.x[:1].expand_as(batch.x))
        own = model.logits(params, batch.x)
        with monkeypatch.context() as patch:
            patch.setattr(layered, "NUMBERS_AT_ONCE", 3 * N * largest)
            patch.setattr(functional, "conv2d", lambda *of: calls.append(0) or plain(*of))
            for x, right in ((batch.x[:1], expected), (batch.x, own)):
                calls.clear()
                torch.testing.assert_close(model.logits(params, x), right, **CLOSE)
                assert len(calls) == -(-B // 3) * len(front)
