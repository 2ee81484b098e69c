"""Residual networks: parameters and multiplications as printed in FedHM's Tables 1 to 3 and drawn
in its Fig. 7 (exact numbers by an independent count), rows of a stack against plain `torch.nn`
layers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.rounding import assert_agree
from support.training_scores import score_training
from torch import Tensor
from twins import convnet as twin

from otafl.core.contracts import Batch, Tensors
from otafl.models.network import Network
from otafl.models.resnet import ResNet

pytestmark = pytest.mark.exact

F64 = torch.float64
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-11}
N, B, CLASSES, SHAPE = 3, 5, 4, (2, 9, 8)

EIGHTEEN = ResNet(ResNet.Settings(name="resnet18"), (3, 32, 32), 10)
CIFAR = ResNet(ResNet.Settings(name="resnet34"), (3, 32, 32), 100)
TINY = ResNet(ResNet.Settings(name="resnet34"), (3, 64, 64), 200)


SIZES = [
    (EIGHTEEN, 11_173_962, 555_422_720),
    (CIFAR, 21_328_292, 1_159_448_576),
    (TINY, 21_379_592, 4_637_691_904),
]


def test_parameters_and_multiplications() -> None:
    for network, parameters, macs in SIZES:
        assert (network.num_params, network.macs) == (parameters, macs)
        other = Network(network.image, network.layers, "horizontal_first")
        assert (other.num_params, other.macs) == (network.num_params, network.macs)


CASES: dict[str, dict[str, Any]] = {
    "deep stem": {"blocks": (2, 1, 1), "channels": (2, 4, 3), "stem_stride": 2},
    "group": {"blocks": (1, 1), "channels": (6, 4), "norm": "group", "groups": 4},
}
OF_CASES = pytest.mark.parametrize("case", CASES)


def made(case: str) -> tuple[ResNet.Settings, ResNet, Tensors, Batch]:
    settings = ResNet.Settings(**CASES[case])
    network = ResNet(settings, SHAPE, CLASSES)
    generator = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=F64)

    params = {name: some(N, *shape) / 2 for name, shape in network.shapes.items()}
    y = torch.randint(0, CLASSES, (N, B), generator=generator)
    return settings, network, params, Batch(some(N, B, *SHAPE), y, None)


@OF_CASES
def test_training_equals_torchs_layers(case: str) -> None:
    """Scores, loss and gradients of every row, with statistics of its own batch alone."""
    settings, network, params, batch = made(case)
    scores = score_training(network, params, batch.x)
    loss, grads = network.compute_gradients(params, batch)
    assert_agree(network.logits(params, batch.x), scores)
    shared = network.logits(params, batch.x[:1].expand_as(batch.x))
    assert_agree(network.logits(params, batch.x[:1]), shared)
    for row in range(N):
        module = twin.resnet(settings, 2, CLASSES, params, row).train()
        torch.testing.assert_close(scores[row], module(batch.x[row]), **CLOSE)
        expected, by = twin.gradients(module, batch.x[row], batch.y[row])
        torch.testing.assert_close(loss[row], expected, **CLOSE)
        assert grads.keys() == by.keys() == params.keys()
        for name, grad in by.items():
            torch.testing.assert_close(grads[name][row], grad, **CLOSE)


def test_moments_are_those_of_torch() -> None:
    """A pass over batches of different rows in training mode, momentum=None: running statistics
    are the means of our moments, and with them scores are those of eval()."""
    settings, network, params, batch = made("deep stem")
    parts = [batch.x, batch.x.flip(2) * 2, batch.x[:, :3]]
    moments = [network.moments(params, x) for x in parts]
    mean = {name: torch.stack([m[name] for m in moments]).mean(0) for name in moments[0]}
    scores = network.logits({**params, **mean}, batch.x)
    for row in range(N):
        module = twin.resnet(settings, 2, CLASSES, params, row).train()
        for x in parts:
            module(x[row])
        state = module.eval().state_dict()
        for name, value in mean.items():
            kind = {"mean": "running_mean", "variance": "running_var"}[name.rsplit(".", 1)[1]]
            torch.testing.assert_close(
                value[row], state[f"{name.rsplit('.', 1)[0]}.{kind}"], **CLOSE
            )
        torch.testing.assert_close(scores[row], module(batch.x[row]), **CLOSE)
        given = twin.resnet(settings, 2, CLASSES, {**params, **mean}, row).eval()
        torch.testing.assert_close(scores[row], given(batch.x[row]), **CLOSE)
    assert len(mean) == len(network.norms)
    apart = score_training(network, {**params, **mean}, batch.x) - scores
    assert apart.abs().max() > 0.01  # training does not use them
