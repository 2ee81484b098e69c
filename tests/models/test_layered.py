"""Chains of layers: the written-out backward pass against autograd and a loop, factored weights
against dense ones.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.layered_bench import CLOSE, WIDTHS, N, draw_batch, draw_params, factorise
from twins.network import gradients as looped_gradients
from twins.setting import minibatch, mlp

from otafl.factorised.lowrank import LowRankMap
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models import LayeredModel, Model
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
