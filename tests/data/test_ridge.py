"""The generated regression has the Hessian and the heterogeneity that are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otafl.data.dataset import DataSet
from otafl.data.loading import load
from otafl.data.ridge import Ridge


def read(**keys: Any) -> DataSet:
    return load(Ridge(**keys))


def solve(data: DataSet, user: int | None = None) -> np.ndarray:
    """The least-squares weights of a user, or of all."""
    assert data.owner is not None
    own = slice(None) if user is None else data.owner == user
    x, y = data.x_train[own].astype(float), data.y_train[own].astype(float)
    return np.asarray(np.linalg.lstsq(x, y, rcond=None)[0])


@pytest.mark.exact
@pytest.mark.parametrize("condition", [1.0, 10.0, 1000.0])
def test_the_mean_hessian_has_the_condition_number(condition: float) -> None:
    data = read(condition=condition, features=5)
    hessian = data.x_train.T.astype(float) @ data.x_train / len(data.x_train)
    values = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(values, np.geomspace(1.0 / condition, 1.0, 5), rtol=1e-4)


@pytest.mark.exact
def test_without_spread_and_noise_all_users_share_the_optimum() -> None:
    data = read(optimum_spread=0.0, label_noise=0.0, features=4)
    for user in range(10):
        np.testing.assert_allclose(solve(data, user), solve(data), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(solve(data)), 1.0, rtol=1e-4)
    apart = read(optimum_spread=1.0, label_noise=0.0, features=4)
    away = [np.linalg.norm(solve(apart, user) - solve(data)) for user in range(10)]
    assert 0.3 < np.mean(away) < 2.0
