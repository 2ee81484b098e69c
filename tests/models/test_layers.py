"""Layers of a network: their start, and their costs by hand."""

from __future__ import annotations

import pytest
import torch
from support.network_bench import F64, IMAGE, STEPS

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.layer_contract import Layer
from otafl.models.layer_lists import Residual, count_costs
from otafl.models.layers import Conv, Linear, MaxPool, MeanPool, Relu
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


def test_kept_numbers() -> None:
    """By hand: images of 6 x 5 pixels after the first convolution, 3 x 2 after the pooling."""
    kept = 3 * 6 * 30 + 3 * 4 * 30 + 3 * 5 * 30 + 5 * 6 + 7 + 7 + 3
    assert Network(IMAGE, STEPS).saved_activations == kept
    ranks = {"a": 2, "c": 3}
    assert Network(IMAGE, STEPS).replace_ranks(ranks).saved_activations == kept + 2 * 6 * 9 + 3 * 30
    across = Network(IMAGE, STEPS, "horizontal_first").replace_ranks(ranks)
    assert across.saved_activations == kept + 2 * 11 * 5 + 3 * 30


@pytest.mark.parametrize(
    ("steps", "match"),
    [
        ((MaxPool(2), MaxPool(2)), "images of 1x2 pixels are too small for a max-pooling"),
        ((Conv("a", 1, 2, 4, padding=0),), "images of 2x5 .* convolution with windows of 4x4"),
        ((Residual((Conv("a", 1, 1, 3, padding=0),)),), "windows of 3x3"),
    ],
)
def test_too_small_an_image(steps: tuple[Layer, ...], match: str) -> None:
    with pytest.raises(UserError, match=f"^model.name: .*{match}"):
        count_costs(steps, (1, 2, 5))
