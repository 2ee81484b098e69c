"""The start of the steps of a network."""

from __future__ import annotations

import pytest
import torch
from support.network_bench import F64, IMAGE, STEPS

from otafl.core.rng import Streams
from otafl.models.layers import Conv, Linear, MeanPool, Relu
from otafl.models.network import Network

pytestmark = pytest.mark.exact


def test_start() -> None:
    """Uniform in He's bound, the last layer in 1/sqrt(fan_in); the same for the same stream."""
    steps = (*STEPS[:2], MeanPool(), Linear("g", 6, 400), Relu(), Linear("h", 400, 30, last=True))
    network = Network(IMAGE, steps)
    draws = Streams([1, 2], [0, 0], dtype=F64)
    params, again = (
        network.init(lambda name, shape: draws.draw_uniform(f"init/{name}", 0, shape))
        for _ in range(2)
    )
    assert list(params) == list(network.shapes)
    for name, block in params.items():
        assert torch.equal(block, again[name])
        assert block.shape == (2, *network.shapes[name])
    bounds = {"a.weight": (6 / 18) ** 0.5, "g.weight": 1.0, "h.weight": 0.05}
    for name, bound in bounds.items():
        assert 0.98 * bound < params[name].abs().max() <= bound
        assert not torch.equal(params[name][0], params[name][1])
    assert params["b.weight"].eq(1).all()
    assert all(params[name].eq(0).all() for name in ("b.bias", "g.bias", "h.bias"))


def test_factors_start_with_the_variance_of_their_product() -> None:
    """Of 6 / (3 fan_in) at every entry, fan_in 90; 4,050 entries, five standard errors."""
    low = Network((10, 5, 5), (Conv("a", 10, 15, rank=20), MeanPool()))
    draws = Streams([1], [0], dtype=F64)
    params = low.init(lambda name, shape: draws.draw_uniform(f"init/{name}", 0, shape))
    product = params["a.left"] @ params["a.right"]
    assert abs(float(product.var()) * 3 * 90 / 6 - 1) < 0.15
