"""Chains of layers: the written-out backward pass against autograd and a loop, factored weights
against dense ones.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.layered_bench import CLOSE, WIDTHS, N, draw_batch, draw_params
from twins.network import gradients as looped_gradients
from twins.setting import minibatch, mlp

from otafl.losses.cross_entropy import CrossEntropy
from otafl.models import LayeredModel, Model, make_chain
from otafl.models.layer_contract import Layer
from otafl.models.layers import Conv, MaxPool, Norm, Relu
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact


def models() -> list[LayeredModel]:
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (WIDTHS[0],), WIDTHS[-1])
    return [mlp(WIDTHS), regression]


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


CONV = Conv("0", 1, 2, has_bias=True, cut=False, numbered=True)
FRONT = (CONV, MaxPool(2))
CHAIN = make_chain([8, 3, 2], 0.1, FRONT)


def test_chains_that_are_trained() -> None:
    assert LayeredModel(CHAIN, (1, 4, 4)).leaky_slope == 0.1
    assert LayeredModel(CHAIN[-1:]).leaky_slope == 0.0


@pytest.mark.parametrize(
    "layers",
    [
        (),
        FRONT,
        tuple(one for one in CHAIN if not isinstance(one, Relu)),
        (CONV, Norm("norm", 2), *CHAIN[2:]),
        (CHAIN[3], Relu(0.1), CONV, *CHAIN[4:]),
    ],
)
def test_other_layers_are_refused(layers: tuple[Layer, ...]) -> None:
    """The backward pass is written for the chains of `make_chain` only."""
    with pytest.raises(ValueError, match="make them with make_chain"):
        LayeredModel(layers, (1, 4, 4))


def test_chains_that_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"slope must not be negative; got -0\.5"):
        make_chain([4, 3], -0.5)
    with pytest.raises(ValueError, match=r"a multiple of the 2 channels .*; got 7"):
        make_chain([7, 3], 0.0, FRONT)
