"""VGG and the small network of convolutions, against `torch.nn.functional`."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from support.network_bench import CLOSE, B, N, draw_normal, draw_params
from support.training_scores import score_training
from torch.nn import functional

from otafl.models.layers import MaxPool
from otafl.models.resnet import ResNet
from otafl.models.vgg import ConvNet, Vgg

pytestmark = pytest.mark.exact

CLASSES, SHAPE = 4, (2, 9, 8)


def test_conv_net_against_torch() -> None:
    settings = ConvNet.Settings(channels=(4, 6), norm="batch", hidden=(3,))
    network = ConvNet(settings, SHAPE, CLASSES)
    params, batch = draw_params(network), draw_normal(N, B, *SHAPE, seed=99)
    scores = score_training(network, params, batch)
    for row in range(N):
        p, x = {name: block[row] for name, block in params.items()}, batch[row]
        for number in (1, 2):
            x = functional.conv2d(x, p[f"conv{number}.weight"], padding=1)
            weight, bias = p[f"norm{number}.weight"], p[f"norm{number}.bias"]
            x = functional.batch_norm(x, None, None, weight, bias, training=True).relu()
            x = functional.max_pool2d(x, 2)
        x = (x.flatten(1) @ p["linear1.weight"] + p["linear1.bias"]).relu()
        expected = x @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[row], expected, **CLOSE)


def test_groups_of_a_narrower_network() -> None:
    """Four groups of 8 channels, gcd(4, 6) = 2 of 6: as torch has them."""
    settings = ConvNet.Settings(channels=(8,), norm="group", groups=4)
    network = ConvNet(settings, SHAPE, CLASSES)
    for channels, groups in ((8, 4), (6, 2), (3, 1)):
        narrow = network.build_network(lambda _, channels=channels: channels)
        params, x = draw_params(narrow), draw_normal(N, B, *SHAPE, seed=99)
        scores = narrow.logits(params, x)
        p = {name: block[1] for name, block in params.items()}
        seen = functional.conv2d(x[1], p["conv1.weight"], padding=1)
        seen = functional.group_norm(seen, groups, p["norm1.weight"], p["norm1.bias"])
        seen = functional.max_pool2d(seen, 2).relu()
        expected = seen.flatten(1) @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[1], expected, **CLOSE)


def test_vgg_against_torch() -> None:
    """Images of 9x8 pixels are of 1x1 after three poolings, so the fourth is left out."""
    settings = Vgg.Settings(blocks=(1, 2, 1, 1), channels=(3, 4, 2, 5))
    network = Vgg(settings, SHAPE, CLASSES)
    assert sum(isinstance(step, MaxPool) for step in network.layers) == 3
    params, batch = draw_params(network), draw_normal(N, B, *SHAPE, seed=99)
    scores = score_training(network, params, batch)
    for row in range(N):
        p, x = {name: block[row] for name, block in params.items()}, batch[row]
        for stage, blocks in enumerate(settings.blocks, 1):
            for block in range(1, blocks + 1):
                conv, norm = f"stage{stage}.conv{block}", f"stage{stage}.norm{block}"
                x = functional.conv2d(x, p[f"{conv}.weight"], padding=1)
                weight, bias = p[f"{norm}.weight"], p[f"{norm}.bias"]
                x = functional.batch_norm(x, None, None, weight, bias, training=True).relu()
            if stage < 4:
                x = functional.max_pool2d(x, 2)
        expected = x.mean((2, 3)) @ p["classifier.weight"] + p["classifier.bias"]
        torch.testing.assert_close(scores[row], expected, **CLOSE)


def test_a_width_for_each_stage() -> None:
    for config in (ResNet.Settings, Vgg.Settings):
        with pytest.raises(ValidationError, match="got 2 numbers for 3 stages"):
            config(blocks=(1, 1, 1), channels=(4, 8))
