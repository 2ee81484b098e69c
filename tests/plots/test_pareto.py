"""Pareto fronts by brute force, and that the figure and the CSV show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.plot_bench import make_result, make_small_result, read_csv

from otafl.core.errors import UserError
from otafl.plots import draw, pareto_data
from otafl.plots.pareto import find_non_dominated

pytestmark = pytest.mark.exact


def test_non_dominated_points_by_brute_force() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        x, y = generator.integers(0, 6, (2, 9)).astype(float)
        x[generator.random(9) < 0.1] = np.nan
        expected = []
        for i in range(9):
            beaten = any(
                x[j] <= x[i] and y[j] <= y[i] and (x[j] < x[i] or y[j] < y[i]) for j in range(9)
            )
            expected.append(np.isfinite(x[i]) and not beaten)
        assert find_non_dominated(x, y).tolist() == expected


def compared() -> xr.Dataset:
    """Accuracy and joules at the end of six points; each trial is 0.9 and 1.1 times the mean."""
    accuracy = np.array([[0.5, 0.2], [0.6, 0.7], [0.8, 0.1]])
    joules = np.array([[1.0, 2.0], [4.0, 4.0], [3.0, 9.0]])
    trials = np.array([0.9, 1.1])[:, None] * np.ones(3)
    energy = joules[..., None, None, None] / 4 * trials[..., None] * np.ones(4)
    values = {"test_accuracy": accuracy[..., None, None] * trials, "tx_energy_j": energy}
    return make_result(values, ["snr_db", "power"])


def test_pareto_front_has_the_best_points_and_joins_them(tmp_path: Path) -> None:
    data = pareto_data(compared(), "test_accuracy", "tx_energy_j", "power")
    assert data["x"].dims == ("power", "snr_db")
    np.testing.assert_allclose(data["x"], [[1, 4, 3], [2, 4, 9]])
    np.testing.assert_allclose(data["x_std"], np.sqrt(2) * 0.1 * data["x"])
    np.testing.assert_allclose(data["y"], [[0.5, 0.6, 0.8], [0.2, 0.7, 0.1]])
    np.testing.assert_array_equal(data["front"], [[True, False, True], [False, False, False]])
    (ax,) = draw(data).axes
    (stairs,) = [one for one in ax.get_lines() if one.get_drawstyle() == "steps-post"]
    np.testing.assert_allclose(stairs.get_xdata(), [1, 3])
    np.testing.assert_allclose(stairs.get_ydata(), [0.5, 0.8])
    marks = {
        point
        for bars in ax.containers
        for point in zip(*(np.round(v, 6) for v in bars.lines[0].get_data()), strict=True)
    }
    assert marks == {(1, 0.5), (4, 0.6), (3, 0.8), (2, 0.2), (4, 0.7), (9, 0.1)}
    assert [text.get_text() for text in ax.texts] == ["1", "2"]
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()][-4:-2] == ["0 dB", "20 dB"]
    assert "lower is better" in ax.get_xlabel()
    assert "higher is better" in ax.get_ylabel()
    rows = read_csv(data, tmp_path)
    assert len(rows) == 6
    assert rows[rows["front"]]["tx_energy_j"].tolist() == pytest.approx([1, 3])


def test_fronts_of_panels_are_their_own_and_trials_are_paired() -> None:
    ds = compared()
    data = pareto_data(ds, "test_accuracy", "tx_energy_j", facet="power")
    np.testing.assert_array_equal(data["front"], [[True, False, True], [True, True, False]])
    ds["test_accuracy"][0, 0, 1] = np.nan  # a trial without accuracy has no joules either
    data = pareto_data(ds, "test_accuracy", "tx_energy_j")
    assert float(data["x"][0, 0]) == pytest.approx(0.9)
    assert int(data["trials"][0, 0]) == 1


def test_what_has_no_front_is_explained() -> None:
    ds = make_small_result()
    with pytest.raises(UserError, match=r"--x participants: whether .* known for test_accuracy"):
        pareto_data(ds, "test_accuracy", "participants")
    with pytest.raises(UserError, match="a Pareto front needs a sweep of two points at the least"):
        pareto_data(ds, "test_accuracy", "tx_energy_j", sel={"snr_db": 0})
