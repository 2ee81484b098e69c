"""Adam steps of CP factors towards dense models: by their definition, and a few rows at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import tdpfed as twin
from twins.setting import mlp

from otafl.algorithms.low_rank import cp_factors
from otafl.algorithms.low_rank.cp_factors import CpParams, FactorPull, PenaltyAdam
from otafl.core.contracts import Tensors
from otafl.factorised import cp
from otafl.models.base import unflatten
from otafl.models.cnn import Cnn
from otafl.models.layered import LayeredModel

pytestmark = pytest.mark.exact

ROWS = 7


def network(kind: str) -> LayeredModel:
    if kind == "cnn":
        return Cnn(Cnn.Settings(channels=(3,), kernel=3, hidden=(9,)), (1, 9, 9), 4)
    return mlp((31, 13, 5))


def start(kind: str) -> tuple[CpParams, Tensor, Tensors]:
    """Names, factors and biases [7, Q], and other parameters to be drawn to."""
    model = network(kind)
    names = CpParams(model, [2] * len(model.layers))
    generator = torch.Generator().manual_seed(8)
    local = torch.randn(ROWS, names.num_coordinates, generator=generator)
    target = {
        name: torch.randn(ROWS, *shape, generator=generator) for name, shape in model.shapes.items()
    }
    return names, local, target


def pulled(kind: str, joint: bool) -> Tensor:
    """Where four steps lead, in two calls; each row at a rate and a penalty of its own."""
    names, local, target = start(kind)
    rate, penalty = torch.linspace(1e-3, 4e-2, ROWS), torch.linspace(1.0, 20.0, ROWS)
    pull = FactorPull(names, local, rate, penalty)
    for _ in range(2):
        pull.take_steps_(target, 2, joint)
    return local


@pytest.mark.parametrize(("kind", "joint"), [("mlp", True), ("cnn", False)])
def test_tiles_change_nothing(kind: str, joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once, three at a time with one left, and each alone."""
    whole = pulled(kind, joint)
    numbers = sum(shape[0] * shape[1] for shape in start(kind)[0].weights.values())
    for rows in (3, 1):
        monkeypatch.setattr(cp_factors, "TILE_BYTES", rows * 8 * numbers)
        torch.testing.assert_close(pulled(kind, joint), whole, rtol=0, atol=1e-5)
    assert float((whole - start(kind)[1]).abs().amax(1).min()) > 1e-3  # every row has moved


@pytest.mark.parametrize(("kind", "joint"), [("mlp", False), ("cnn", True)])
def test_nothing_moves_what_is_there(
    kind: str, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam would turn the rounding of a residual into whole steps: in every tile it is exactly 0
    where the target is what the factors of its row make."""
    names, local, _ = start(kind)
    monkeypatch.setattr(cp_factors, "TILE_BYTES", 1)
    before, rate = local.clone(), torch.full((ROWS,), 1e-2)
    each = [names.to_dense(unflatten(row, names.shapes)) for row in local.split(1)]
    target = {name: torch.cat([one[name] for one in each]) for name in each[0]}
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
        adam.step_(g.flatten(1))
        for row, other in enumerate(theirs):
            expected[row] = other.step(expected[row], float(penalty[row]) * g[row].numpy())
        np.testing.assert_allclose(ours.view(2, 3, 4), np.stack(expected), rtol=0, atol=1e-12)


def test_lambda_acts_on_the_factors_through_theta_alone() -> None:
    """Fact F12: s' Adam steps at a fixed theta, lambda 12 and 1."""
    generator = torch.Generator().manual_seed(4)
    target = torch.randn(1, 20, 10, generator=generator, dtype=torch.float64)
    found = []
    for penalty in (12.0, 1.0):
        one = torch.ones(1, 3 * (20 + 10), dtype=torch.float64)
        one[:, 60:] = 0.5
        first, second = one.split([60, 30], 1)
        adam = PenaltyAdam(one, *torch.tensor([[8e-4], [penalty]], dtype=torch.float64))
        for _ in range(60):
            by = cp.compute_factor_gradients(target, [first.view(1, 3, 20), second.view(1, 3, 10)])
            adam.step_(torch.cat([g.flatten(1) for g in by], 1))
        found.append(one)
    assert 0 < float((found[0] - found[1]).norm() / found[1].norm()) < 6e-7
