"""The costs of a network's steps, against torch's own counter and by hand."""

from __future__ import annotations

import pytest
from support.network_bench import IMAGE, STEPS

from otafl.core.errors import UserError
from otafl.models.layer_contract import Layer
from otafl.models.layer_lists import Residual, count_costs
from otafl.models.layers import Conv, MaxPool
from otafl.models.network import Network

pytestmark = pytest.mark.exact


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
