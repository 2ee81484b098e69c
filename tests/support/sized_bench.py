"""Small networks whose width can be cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.models.cnn import Cnn
from otafl.models.mlp import Mlp
from otafl.models.network import Network, ResizableModel
from otafl.models.resnet import ResNet
from otafl.models.vgg import ConvNet, Vgg

F64 = torch.float64
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-11}
N, B, CLASSES, SHAPE = 3, 5, 4, (2, 9, 8)

SMALL: dict[str, ResizableModel] = {
    "mlp": Mlp(Mlp.Settings(hidden=(6, 8), activation="leaky_relu"), SHAPE, CLASSES),
    "cnn": Cnn(Cnn.Settings(channels=(4, 6), kernel=3, hidden=(8,)), SHAPE, CLASSES),
    "strided": Cnn(
        Cnn.Settings(channels=(4, 2), kernel=2, stride=2, padding="valid", pool=1, hidden=()),
        (9, 11),
        CLASSES,
    ),
    "conv_net": ConvNet(ConvNet.Settings(channels=(4, 6), hidden=(8, 2)), SHAPE, CLASSES),
    "conv_net none": ConvNet(
        ConvNet.Settings(channels=(4, 6), norm="none", hidden=(8,)), SHAPE, CLASSES
    ),
    "resnet none": ResNet(
        ResNet.Settings(blocks=(1, 1), channels=(4, 6), norm="none"), SHAPE, CLASSES
    ),
    "vgg none": Vgg(Vgg.Settings(blocks=(2, 1), channels=(4, 6), norm="none"), SHAPE, CLASSES),
}


def draw_normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def draw_params(model: Any, rows: int = N) -> Tensors:
    """Normal parameters of deviation one half."""
    return {
        name: draw_normal(rows, *shape, seed=number) / 2
        for number, (name, shape) in enumerate(model.shapes.items())
    }


def make_full_network(model: ResizableModel) -> Network:
    """The model at full width."""
    return model.build_network(lambda channels: channels)


def divide_by_three(channels: int) -> int:
    """Of so many, rounded up."""
    return -(-channels // 3)
