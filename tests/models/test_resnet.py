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


def hybrid(network: Network, dense: int, ratio: float) -> Network:
    """All but the first `dense` factorisable steps low-rank."""
    names = network.factorisable_names[dense:]
    ranks = {n: max(1, round(ratio * network.shapes[f"{n}.weight"][0])) for n in names}
    return network.replace_ranks(ranks)


def slim(network: Network, ratio: float) -> Network:
    return network.build_network(lambda channels: round(ratio * channels))


SIZES = [
    (EIGHTEEN, 11_173_962, 555_422_720),
    (hybrid(EIGHTEEN, 3, 0.5), 4_157_514, 259_724_288),
    (hybrid(EIGHTEEN, 3, 0.25), 2_209_866, 171_643_904),
    (hybrid(EIGHTEEN, 3, 0.125), 1_236_042, 127_603_712),
    (slim(EIGHTEEN, 0.62), 4_293_347, 214_519_218),
    (slim(EIGHTEEN, 0.50), 2_797_610, 139_299_328),
    (slim(EIGHTEEN, 0.35), 1_373_160, 67_991_534),
    (CIFAR, 21_328_292, 1_159_448_576),
    (hybrid(CIFAR, 15, 0.5), 8_401_316, 744_212_480),
    (hybrid(CIFAR, 15, 0.25), 4_985_252, 630_966_272),
    (hybrid(CIFAR, 15, 0.125), 3_277_220, 574_343_168),
    (hybrid(CIFAR, 15, 1 / 12), 2_707_748, 555_173_888),
    (slim(CIFAR, 0.64), 8_769_303, 476_257_312),
    (slim(CIFAR, 0.50), 5_349_636, 290_317_312),
    (slim(CIFAR, 0.40), 3_423_974, 186_315_556),
    (TINY, 21_379_592, 4_637_691_904),
    (hybrid(TINY, 15, 0.5), 8_452_616, 2_976_747_520),
    (hybrid(TINY, 15, 0.25), 5_036_552, 2_523_762_688),
    (hybrid(TINY, 15, 0.125), 3_328_520, 2_297_270_272),
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
