"""Adam steps of CP factors towards dense models: by their definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import tdpfed as twin
from twins.setting import mlp

from otafl.algorithms.low_rank.cp_factors import CpParams, FactorPull, PenaltyAdam
from otafl.models.base import unflatten
from otafl.models.cnn import Cnn
from otafl.models.layered import LayeredModel

pytestmark = pytest.mark.exact

ROWS = 7


def network(kind: str) -> LayeredModel:
    if kind == "cnn":
        return Cnn(Cnn.Settings(channels=(3,), kernel=3, hidden=(9,)), (1, 9, 9), 4)
    return mlp((31, 13, 5))


def start(kind: str) -> tuple[CpParams, Tensor]:
    """Names, and factors and biases [7, Q]."""
    model = network(kind)
    names = CpParams(model, [2] * len(model.layers))
    generator = torch.Generator().manual_seed(8)
    return names, torch.randn(ROWS, names.num_coordinates, generator=generator)


@pytest.mark.parametrize(("kind", "joint"), [("mlp", False), ("cnn", True)])
def test_nothing_moves_what_is_there(kind: str, joint: bool) -> None:
    """Adam would turn the rounding of a residual into whole steps: it is exactly 0 where the target
    is what the factors make."""
    names, local = start(kind)
    before, rate = local.clone(), torch.full((ROWS,), 1e-2)
    target = {n: b.clone() for n, b in names.to_dense(unflatten(local, names.shapes)).items()}
    FactorPull(names, local, rate, rate).take_steps_(target, 3, joint)
    assert torch.equal(local, before)


def test_adam_by_its_definition() -> None:
    """Also where gradients are as small as epsilon: each row by its own rate and lambda, which
    divides out but for epsilon."""
    rate = torch.tensor([1e-3, 5e-2], dtype=torch.float64)
    penalty = torch.tensor([12.0, 1.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    ours = start.flatten(1).clone()
    adam = PenaltyAdam(ours, rate, penalty)
    expected = [row.numpy() for row in start]
    theirs = [twin.Adam(float(r)) for r in rate]
    for step in range(5):
        g = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
        g[:, 0] *= 1e-9
        g[:, 1] = 0.0 if step < 2 else g[:, 1]
        adam.advance()
        adam.move_(slice(None), g.flatten(1))
        for row, other in enumerate(theirs):
            expected[row] = other.step(expected[row], float(penalty[row]) * g[row].numpy())
        np.testing.assert_allclose(ours.view(2, 3, 4), np.stack(expected), rtol=0, atol=1e-12)
