"""Chains of layers: the written-out backward pass against autograd and a loop, factored weights
against dense ones.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.layered_bench import CLOSE, F64, WIDTHS, B, N, draw_batch, draw_params, factorise
from support.rounding import assert_agree
from twins.network import gradients as looped_gradients
from twins.setting import minibatch, mlp

from otafl.core.contracts import Batch
from otafl.factorised.lowrank import LowRankMap
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models import LayeredModel, Model
from otafl.models.cnn import Cnn
from otafl.models.mlp import Mlp
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact


def models() -> list[LayeredModel]:
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (WIDTHS[0],), WIDTHS[-1])
    return [mlp(WIDTHS), regression]


def make_leaky() -> Mlp:
    settings = Mlp.Settings(hidden=WIDTHS[1:-1], activation="leaky_relu")
    return Mlp(settings, (WIDTHS[0],), WIDTHS[-1])


@pytest.mark.parametrize(("index", "weighted"), [(0, True), (1, False)])
def test_backward_equals_autograd_and_the_loop(index: int, weighted: bool) -> None:
    model, batch = models()[index], draw_batch(weighted)
    params = draw_params(model)
    before = [block.clone() for block in (*params.values(), batch.x)]
    loss, grads = model.compute_gradients(params, batch)
    for block, old in zip((*params.values(), batch.x), before, strict=True):
        assert torch.equal(block, old)
    auto_loss, auto = Model.compute_gradients(model, params, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    torch.testing.assert_close(
        loss, CrossEntropy().compute_mean(model.logits(params, batch.x), batch), **CLOSE
    )
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


def test_sgd_is_a_step_along_the_gradient() -> None:
    model, batch = mlp(WIDTHS), draw_batch(weighted=True)
    params = draw_params(model)
    step = torch.tensor([0.1, 0.7, 0.0], dtype=F64)
    loss, grads = Model.compute_gradients(model, params, batch)
    for way in (type(model).take_sgd_step_, Model.take_sgd_step_):
        moved = {name: block.clone() for name, block in params.items()}
        torch.testing.assert_close(way(model, moved, batch, step), loss, **CLOSE)
        for name, block in params.items():
            by = step.view(-1, *[1] * (block.dim() - 1)) * grads[name]
            torch.testing.assert_close(moved[name], block - by, **CLOSE)


def test_factored_weights_give_the_dense_gradient_in_thin_products() -> None:
    """Also fact 6 of FedRLR: G V and G^T U come without a dense gradient, at every layer."""
    model, batch = make_leaky(), draw_batch(weighted=True)
    thin, full = factorise(model, draw_params(model), 3, 3)
    loss, pairs = model.compute_pairs(thin, batch)
    auto_loss, auto = Model.compute_gradients(model, full, batch)
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
    model, batch = mlp(WIDTHS), draw_batch(False)
    params = draw_params(model)
    shared = batch.x[:1]
    expected = model.logits(params, shared.expand(N, -1, -1))
    torch.testing.assert_close(model.logits(params, shared), expected, **CLOSE)
    images = batch.x.view(N, B, 1, 2, 3)
    torch.testing.assert_close(model.logits(params, images), model.logits(params, batch.x), **CLOSE)
    loss, grads = model.compute_gradients(params, Batch(images, batch.y, None))
    flat_loss, flat = model.compute_gradients(params, batch)
    assert_agree(loss, flat_loss)
    assert_agree(grads, flat)


def test_leaky_relu_of_convolutions() -> None:
    """Both ways of computing them: with dense weights, and patch by patch."""
    settings = Cnn.Settings(channels=(2, 3), kernel=3, hidden=(5,), activation="leaky_relu")
    model = Cnn(settings, (1, 8, 8), WIDTHS[-1])
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, B, 1, 8, 8, generator=generator, dtype=F64)
    batch = Batch(x, draw_batch(False).y, None)
    params = draw_params(model)
    loss, grads = model.compute_gradients(params, batch)
    auto_loss, auto = Model.compute_gradients(model, params, batch)
    torch.testing.assert_close(loss, auto_loss, **CLOSE)
    for name in params:
        torch.testing.assert_close(grads[name], auto[name], **CLOSE)
    pair_loss, pairs = model.compute_pairs(params, batch)
    torch.testing.assert_close(pair_loss, loss, **CLOSE)
    for layer, (met, g) in zip(model.layers, pairs, strict=True):
        torch.testing.assert_close(met.mT @ g, grads[layer.weight], **CLOSE)
