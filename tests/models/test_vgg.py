"""VGG, against `torch.nn.functional`."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from support.sized_bench import CLASSES, CLOSE, SHAPE, B, N, draw_normal, draw_params
from support.training_scores import score_training
from torch.nn import functional

from otafl.models.layers import MaxPool
from otafl.models.resnet import ResNet
from otafl.models.vgg import Vgg

pytestmark = pytest.mark.exact


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
