"""A residual network of plain `torch.nn` layers, one row at a time, with the names of ours."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.contracts import Tensors
from otafl.models.resnet import ResNet as Ours


def norm(settings: Ours.Settings, channels: int) -> nn.Module:
    if settings.norm == "none":
        return nn.Identity()
    if settings.norm == "group":
        groups = max(
            g for g in range(1, settings.groups + 1) if settings.groups % g == channels % g == 0
        )
        return nn.GroupNorm(groups, channels)
    return nn.BatchNorm2d(channels, momentum=None)


def conv(settings: Ours.Settings, inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    bias = settings.norm == "none"
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=bias)


class BasicBlock(nn.Module):
    def __init__(self, settings: Ours.Settings, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(settings, inputs, outputs, 3, stride)
        self.norm1 = norm(settings, outputs)
        self.conv2 = conv(settings, outputs, outputs, 3, 1)
        self.norm2 = norm(settings, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.add_module("conv", conv(settings, inputs, outputs, 1, stride))
            self.shortcut.add_module("norm", norm(settings, outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, settings: Ours.Settings, colours: int, classes: int) -> None:
        super().__init__()
        width = settings.channels[0]
        self.stem = nn.Sequential()
        self.stem.add_module("conv", conv(settings, colours, width, 3, settings.stem_stride))
        self.stem.add_module("norm", norm(settings, width))
        self.stages: list[nn.Module] = []
        for stage, (blocks, outputs) in enumerate(
            zip(settings.blocks, settings.channels, strict=True)
        ):
            whole = nn.Sequential()
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                whole.add_module(f"block{block + 1}", BasicBlock(settings, width, outputs, stride))
                width = outputs
            self.add_module(f"stage{stage + 1}", whole)
            self.stages.append(whole)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        return self.classifier(x.mean((2, 3)))


def resnet(
    settings: Ours.Settings, colours: int, classes: int, params: Tensors, row: int
) -> ResNet:
    """The network with the parameters of a row, and the statistics of its norms where given."""
    module = ResNet(settings, colours, classes).double()
    state = {}
    for name, block in params.items():
        value = block[row].T if name == "classifier.weight" else block[row]
        name = name.replace(".mean", ".running_mean").replace(".variance", ".running_var")
        state[name] = value.clone()
    missing, unexpected = module.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.split(".")[-1].startswith(("running", "num_batches")) for name in missing)
    return module


def gradients(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensors]:
    """Loss of a batch, and its gradient by every parameter, in our layout."""
    loss = functional.cross_entropy(module(x), y)
    names, leaves = zip(*module.named_parameters(), strict=True)
    grads = dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))
    grads["classifier.weight"] = grads["classifier.weight"].T
    return loss.detach(), grads
