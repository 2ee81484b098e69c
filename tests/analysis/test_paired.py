"""Paired comparison of points under common random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from support.rounding import assert_agree

import otafl
from otafl.analysis.paired import adjust_p_values, compare_pairs
from otafl.core.errors import UserError

POWER = ["gbma", "ci"]


def result(base: list[float], other: list[float], name: str = "test_accuracy") -> xr.Dataset:
    """Two policies whose trials end with these values; before the end everything is 0."""
    ends = np.array([base, other])
    values = np.stack([np.zeros_like(ends), ends], -1)
    return xr.Dataset(
        {name: (("power", "trial", "round"), values, {"units": "1"})},
        {"power": POWER, "round": [0, 10], "final_round": ("power", [10, 10])},
    )


def test_worked_by_hand() -> None:
    """Differences 1 to 5: mean 3, standard deviation sqrt(5/2), error sqrt(1/2), t = 4.243 with 4
    degrees, t at 97.5 % is 2.7764."""
    ds = result([10, 20, 30, 40, 50], [11, 22, 33, 44, 55])
    found = compare_pairs(ds, "test_accuracy", "power", "gbma").sel(power="ci")
    assert found["difference"] == 3
    assert found["std"] == pytest.approx(np.sqrt(2.5))
    assert found["std_error"] == pytest.approx(np.sqrt(0.5))
    assert found["low"] == pytest.approx(3 - 2.7764 * np.sqrt(0.5), abs=1e-4)
    assert found["high"] == pytest.approx(3 + 2.7764 * np.sqrt(0.5), abs=1e-4)
    assert found["p"] == found["p_holm"] == pytest.approx(0.01324, abs=1e-5)
    assert (found["pairs"], found["dropped"]) == (5, 0)
    assert (found["mean"], found["baseline_mean"]) == (33, 30)
    assert found.attrs["baseline"] == "gbma"


def test_a_diverged_trial_is_dropped_from_both() -> None:
    whole = result([1, 2, 4, 5], [2, 4, 5, 9])
    lost = result([1, 2, 4, 5, 100], [2, 4, 5, 9, np.nan])
    lost = xr.concat([lost, result([np.nan] * 5, [0] * 5).isel(trial=[0])], "trial", join="outer")
    lost = lost.assign_coords(final_round=("power", [10, 10]))
    one, two = (
        compare_pairs(ds, "test_accuracy", "power", "gbma").isel(power=0) for ds in (whole, lost)
    )
    assert (two["pairs"], two["dropped"]) == (4, 2)
    for name in ("difference", "std", "low", "p", "baseline_mean"):
        assert_agree(two[name], one[name], name)


@pytest.mark.parametrize(
    ("base", "other", "difference", "std", "p"),
    [
        ([1.0], [3.0], 2, np.nan, np.nan),
        ([1.0, 1.0], [3.0, 5.0], 3, np.sqrt(2), np.nan),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0, 0, 1),
        ([0.1, 0.3, 0.7], [0.1 + 0.2, 0.5, 0.9], 0.2, 0, 0),
    ],
)
def test_too_few_pairs_tell_nothing_and_equal_ones_are_told(
    base: list[float], other: list[float], difference: float, std: float, p: float
) -> None:
    found = compare_pairs(result(base, other), "test_accuracy", "power", "gbma").isel(power=0)
    got = [float(found[name]) for name in ("difference", "std", "p", "p_holm")]
    np.testing.assert_allclose(got, [difference, std, p, p])
    assert bool(found["low"].isnull()) == np.isnan(p)


def test_holm_by_hand() -> None:
    """0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is less than the one before."""
    p = np.array([[0.01, 0.04, 0.03], [np.nan, 0.005, np.nan]])
    np.testing.assert_allclose(adjust_p_values(p), [[0.03, 0.06, 0.06], [np.nan, 0.02, np.nan]])
    np.testing.assert_array_equal(adjust_p_values(np.array([0.6, 0.7])), [1, 1])


def test_every_point_of_the_other_axes_and_the_axis_in_any_form() -> None:
    rng = np.random.default_rng(3)
    values = rng.random((3, 2, 4))
    ds = xr.Dataset(
        {"test_loss": (("zip", "snr_db", "trial"), values)},
        {
            "power": ("zip", ["a", "b", "c"]),
            "kind": ("zip", ["x", "x", "y"]),
            "zip": [0, 1, 2],
            "snr_db": [0.0, 12.5],
            "final_round": (("zip", "snr_db"), np.full((3, 2), 4.0)),
        },
    )
    of_power = compare_pairs(ds, "test_loss", "power", "b")
    assert of_power["power"].values.tolist() == ["a", "c"]
    got = of_power["difference"].sel(power="c").transpose("snr_db")
    np.testing.assert_allclose(got, (values[2] - values[1]).mean(-1))
    np.testing.assert_allclose(of_power["p_holm"], adjust_p_values(of_power["p"].values))
    for value in (12.5, "12.5"):
        of_snr = compare_pairs(ds, "test_loss", "snr_db", value)["difference"]
        np.testing.assert_allclose(of_snr.sel(snr_db=0.0), (values[:, 0] - values[:, 1]).mean(-1))
    np.testing.assert_allclose(
        compare_pairs(ds, "test_loss", "zip", 1)["difference"].sel(zip=2),
        (values[2] - values[1]).mean(-1),
    )
    for dim, base, said in (
        ("kind", "x", "the same value at several places of zip; compare along zip"),
        ("power", "d", "the baseline 'd' is no value of power; it has a, b, c"),
        ("snr_db", "loud", "the baseline 'loud' is no value of snr_db"),
        ("snr", 0, "did you mean 'snr_db'"),
        ("seed", 0, "no random numbers are common"),
    ):
        with pytest.raises(UserError, match=said):
            compare_pairs(ds, "test_loss", dim, base)
    with pytest.raises(UserError, match="did you mean 'test_loss'"):
        compare_pairs(ds, "test_los", "power", "b")


def test_two_points_or_two_results() -> None:
    """second - first; where points were picked, by equal values of the axes that are left."""
    ds = result([10, 20, 30, 40, 50], [11, 22, 33, 44, 55])
    one, two = (ds.sel(power=power) for power in POWER)
    whole = otafl.compare_pairs(ds, baseline="gbma").isel(power=0)
    points = otafl.compare_results(one, two)
    for name in ("difference", "low", "high", "p", "p_holm", "pairs"):
        assert float(points[name]) == pytest.approx(float(whole[name]))
    assert points["difference"] == 3
    more = otafl.compare_results(ds, ds.isel(power=[1]) + 1)
    assert (more["power"].values.tolist(), more["difference"].values.tolist()) == (["ci"], [1])
    with pytest.raises(UserError, match="expected the same axes, got power and no axis"):
        otafl.compare_results(ds, one)
    with pytest.raises(UserError, match="no point and trial is in both"):
        otafl.compare_results(ds.isel(power=[0]), ds.isel(power=[1]))
    with pytest.raises(UserError, match=r"expected results of one seed, .* got 0 and 1"):
        otafl.compare_results(one.assign_attrs(seed=0), two.assign_attrs(seed=1))


def test_what_cannot_be_compared_is_said() -> None:
    ds = result([1, 2, 3], [2, 3, 5])
    with pytest.raises(UserError, match=r"expected an axis or a second result; .* no sweep"):
        otafl.compare_pairs(ds.isel(power=0))
    with pytest.raises(UserError, match="level: expected a number above 0 and below 1"):
        otafl.compare_pairs(ds, level=95)
