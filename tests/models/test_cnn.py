"""The convolutional network: sizes, its start, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from otafl.core.errors import UserError
from otafl.models import list_layer_sides
from otafl.models.cnn import Cnn
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("settings", "size", "macs", "expected"),
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
    settings: dict[str, Any], size: int, macs: int, expected: list[tuple[int, int]]
) -> None:
    model = Cnn(Cnn.Settings(**settings), (784,), 10)
    assert (model.num_params, model.macs) == (size, macs)
    assert [(layer.inputs, layer.outputs) for layer in model.layers] == expected
    tree = {"name": "x", "data": "mnist", "model": {"name": "cnn", **settings}}
    scenario = load_scenario(tree)
    data = scenario.data
    assert list_layer_sides(scenario.model, data.input_shape, data.classes) == expected


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ({}, (65,), r"model.name: 'cnn' needs images .* has shape \[65\]"),
        ({}, (2, 2, 8, 8), r"model.name: 'cnn' needs images .* has shape \[2, 2, 8, 8\]"),
        (
            {"padding": "valid"},
            (64,),
            "model.kernel: got 5, but convolution 2 has an image of only 2x2; .*padding: same",
        ),
        (
            {"channels": (2, 2, 2, 2)},
            (8, 30),
            "model.pool: got 2, but convolution 4 leaves an image of only 1x3; use a smaller",
        ),
    ],
)
def test_samples_that_are_no_images_or_too_small(
    settings: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Cnn(Cnn.Settings(**settings), shape, 10)


@pytest.mark.parametrize(
    ("model", "rank", "message"),
    [
        ({"kernel": 4}, 4, "'same' needs an odd kernel; got kernel: 4, use kernel: 5"),
        ({}, [4, 33, 4, 4], r"rank: got \[4, 33, 4, 4\], .*; use at most \[16, 32, 128, 10\]"),
        ({}, [4, 4, 4], r"for 4 layers \(25x16: 16, 400x32: 32, 128x128: 128, 128x10: 10\)"),
        ({}, 129, r"algorithm.rank: got 129, .*; use at most 128"),
    ],
)
def test_a_scenario_that_does_not_fit_is_refused(model: dict, rank: Any, message: str) -> None:
    algorithm = {"name": "fedrlr", "rank": rank}
    tree = {"name": "x", "data": "digits", "model": {"name": "cnn", **model}}
    with pytest.raises(UserError, match=message):
        load_scenario({**tree, "algorithm": algorithm})
