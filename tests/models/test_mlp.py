"""The perceptron: its start and its sizes."""

from __future__ import annotations

import pytest
import torch
from support.layered_bench import N, draw_uniform
from twins.setting import mlp

from otafl.models.cnn import Cnn
from otafl.models.mlp import Mlp
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact


def test_starts() -> None:
    """Perceptron and convolutions: +-1/sqrt(fan_in), each trial its own, biases zero; softmax
    regression: zero."""
    cnn = Cnn(Cnn.Settings(channels=(20, 30), hidden=(40,)), (3, 8, 8), 10)
    assert [layer.inputs for layer in cnn.layers] == [75, 500, 120, 40]
    for model in (mlp((400, 100, 10)), cnn):
        params = model.init(draw_uniform)
        for layer in model.layers:
            scaled = params[layer.weight] * layer.inputs**0.5
            assert scaled.shape == (N, layer.inputs, layer.outputs)
            assert 0.99 < scaled.abs().max() <= 1.0
            # Variance 1/3 of a uniform; 5 standard errors over 1,200 numbers or more: level 1e-6.
            count = scaled.numel()
            assert abs(scaled.square().mean() - 1 / 3) < 5 * (4 / 45 / count) ** 0.5
            assert (params[layer.bias] == 0).all()
        assert not torch.equal(params["weight0"][0], params["weight0"][1])
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (6,), 4)
    assert all((block == 0).all() for block in regression.init(draw_uniform).values())
    assert regression.shapes == {"weight0": (6, 4), "bias0": (4,)}


def test_uniform_starts_are_pytorchs() -> None:
    """Weights and biases uniform in +-1/sqrt(fan_in), as torch.nn.Linear starts both."""
    model = Mlp(Mlp.Settings(hidden=(100,), bias_start="uniform"), (400,), 50)
    regression = SoftmaxRegression(SoftmaxRegression.Settings(start="uniform"), (400,), 50)
    cnn = Cnn(Cnn.Settings(channels=(60,), bias_start="uniform"), (28, 28), 50)
    for one in (model, regression, cnn):
        params = one.init(draw_uniform)
        for layer in one.layers:
            for block in (params[layer.weight], params[layer.bias]):
                scaled = block * layer.inputs**0.5
                assert 0.9 < scaled.abs().max() <= 1.0
                assert abs(scaled.mean()) < 5 * (1 / 3 / scaled.numel()) ** 0.5
                assert not torch.equal(scaled[0], scaled[1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = torch.nn.Linear(400, 50)
    assert 0.9 < linear.bias.abs().max() * 20 <= 1.0
    same = mlp((400, 100, 50)).init(draw_uniform)
    assert torch.equal(same["weight0"], model.init(draw_uniform)["weight0"])
