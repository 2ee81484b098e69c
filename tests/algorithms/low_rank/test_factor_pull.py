"""Steps of CP factors towards dense models: a few rows at a time, and where nothing pulls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins.setting import mlp

from otafl.algorithms.low_rank import factor_pull
from otafl.algorithms.low_rank.cp_params import CpParams
from otafl.algorithms.low_rank.factor_pull import FactorPull
from otafl.core.contracts import Tensors
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


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_tiles_change_nothing(kind: str, joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once, three at a time with one left, and each alone."""
    whole = pulled(kind, joint)
    numbers = sum(shape[0] * shape[1] for shape in start(kind)[0].weights.values())
    for rows in (3, 1):
        monkeypatch.setattr(factor_pull, "TILE_BYTES", rows * 8 * numbers)
        torch.testing.assert_close(pulled(kind, joint), whole, rtol=0, atol=1e-5)
    assert float((whole - start(kind)[1]).abs().amax(1).min()) > 1e-3  # every row has moved


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_nothing_moves_what_is_there(
    kind: str, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam would turn the rounding of a residual into whole steps: in every tile it is exactly 0
    where the target is what the factors of its row make."""
    names, local, _ = start(kind)
    monkeypatch.setattr(factor_pull, "TILE_BYTES", 1)
    before, rate = local.clone(), torch.full((ROWS,), 1e-2)
    each = [names.to_dense(unflatten(row, names.shapes)) for row in local.split(1)]
    target = {name: torch.cat([one[name] for one in each]) for name in each[0]}
    FactorPull(names, local, rate, rate).take_steps_(target, 3, joint)
    assert torch.equal(local, before)
