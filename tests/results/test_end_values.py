"""The end of a trial: it is the same whatever the trial was stacked with, also if it diverged."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario

from otafl import plots, sweeping
from otafl.analysis.paired import compare_pairs
from otafl.analysis.tables import build_grid
from otafl.plots.pareto import pareto_data
from otafl.results.end_values import (
    count_diverged,
    describe_diverged,
    select_end_total,
    select_final,
)

pytestmark = pytest.mark.exact

DIVERGES = {"algorithm.learning_rate": 1e30}
SOUND = 0.05
SAID = "3 of 6 trials diverged in round 1: metrics count as a guess, all else is left out"
GUESS = 0.1
"""Among ten classes of digits."""


@pytest.fixture(scope="module")
def alone() -> xr.Dataset:
    """Three trials that all diverge: the run ends with the record in which they do."""
    return sweeping.run(scenario(DIVERGES))


@pytest.fixture(scope="module")
def together() -> xr.Dataset:
    """The same trials beside three that do not diverge."""
    return sweeping.run(scenario({"sweep": {"algorithm.learning_rate": [SOUND, 1e30]}}))


def test_a_run_that_diverges_is_the_same_alone_and_in_a_sweep(
    alone: xr.Dataset, together: xr.Dataset
) -> None:
    beside = together.sel(learning_rate=1e30)
    assert np.isfinite(alone["diverged_round"]).all()
    assert int(alone["final_round"]) < int(beside["final_round"])
    recorded = alone["test_accuracy"].isel(round=-1)
    assert np.isfinite(recorded).all()  # of the broken model, and stays in the file
    for name in ("test_accuracy", "test_loss", "tx_energy_j", "airtime_s", "aggregation_nmse"):
        assert np.isnan(select_final(alone, name)).all()
        np.testing.assert_array_equal(select_final(alone, name), select_final(beside, name))
        np.testing.assert_allclose(
            select_end_total(alone, name), select_end_total(beside, name), rtol=1e-6
        )
    np.testing.assert_allclose(select_end_total(alone, "test_accuracy"), GUESS)
    assert np.isnan(select_end_total(alone, "tx_energy_j")).all()


def test_every_table_and_figure_counts_it_alike(together: xr.Dataset) -> None:
    """Means over trials of the accuracy, with the trials that diverged."""
    wanted = select_end_total(together, "test_accuracy").mean("trial").values
    assert wanted[1] == pytest.approx(GUESS)
    assert wanted[0] > wanted[1] + 0.02
    table = build_grid(together, "test_accuracy")
    np.testing.assert_allclose(table.values.mean(-1).ravel(), wanted)
    assert "missing or diverged" not in table.caption
    assert table.caption.endswith(SAID)
    curve = plots.curve_data(together, "test_accuracy", "round", hue="learning_rate")
    np.testing.assert_allclose(curve["mean"].isel(round=-1), wanted)
    assert curve["trials"].values.tolist() == [[3] * 5] * 2
    assert curve.attrs["note"] == SAID
    against = plots.curve_data(together, "test_accuracy", "learning_rate")
    np.testing.assert_allclose(against["mean"], wanted)
    front = pareto_data(together, "test_accuracy", "airtime_s")
    np.testing.assert_allclose(front["y"], wanted)
    assert np.isnan(front["x"].values[1])  # no trial has spent what the whole run costs
    pairs = compare_pairs(together, "test_accuracy", "learning_rate", SOUND)
    assert pairs["dropped"].item() == 0
    assert pairs["mean"].item() == pytest.approx(GUESS)
    assert compare_pairs(together, "airtime_s", "learning_rate", SOUND)["dropped"].item() == 3


def test_without_a_guess_it_counts_as_the_untrained_model(together: xr.Dataset) -> None:
    old = together.drop_vars("accuracy_guess")
    assert describe_diverged(old) == SAID.replace("a guess", "the untrained model's")
    untrained = old["test_accuracy"].sel(round=0, learning_rate=1e30)
    ends = select_end_total(old, "test_accuracy").sel(learning_rate=1e30)
    np.testing.assert_array_equal(ends, untrained)


def test_a_diverged_trial_counts_as_a_guess_to_the_last_round() -> None:
    """Also where its stack ended early; other variables than guesses stay as they are."""
    nan = np.nan
    accuracy = [[0.1, 0.5, 0.9], [0.07, 0.02, nan]]
    ds = xr.Dataset(
        {
            "test_accuracy": (("trial", "round"), np.array(accuracy)),
            "train_loss": (("trial", "round"), np.array(accuracy)),
            "diverged_round": ("trial", np.array([nan, 2.0])),
            "accuracy_guess": ("trial", np.array([0.25, 0.2])),
        },
        coords={"round": [0, 2, 4], "final_round": 2},
    )
    counted = count_diverged(ds, to_last_round=True)
    np.testing.assert_allclose(counted["test_accuracy"][1], [0.07, 0.2, 0.2])
    np.testing.assert_allclose(counted["test_accuracy"][0], accuracy[0])
    np.testing.assert_allclose(counted["train_loss"][1], [0.07, nan, nan])
    (to_own_end,) = count_diverged(ds, ["test_accuracy"])["test_accuracy"][1:]
    np.testing.assert_allclose(to_own_end, [0.07, 0.2, nan])
    np.testing.assert_allclose(select_end_total(ds, "test_accuracy"), [0.5, 0.2])


def test_a_guess_is_that_of_the_model_and_its_samples() -> None:
    """An untrained model, here pretrained and right in 90 % of all cases, is no guess."""
    guesses = {"accuracy_guess": 0.1, "own_accuracy_guess": 0.5, "perplexity_guess": 28.0}
    for name, guess in {
        "own_test_accuracy": 0.1,
        "personal_own_test_accuracy": 0.5,
        "device_tuned_own_test_accuracy": 0.5,
        "local_test_accuracy": 0.1,
        "test_perplexity": 28.0,
        "own_test_mse": 2.0,
        "test_r2": 0.0,
        "test_loss": np.nan,
    }.items():
        ds = xr.Dataset(
            {name: (("trial", "round"), [[0.9, 0.95]]), "diverged_round": ("trial", [2.0])}
            | {one: ("trial", [value]) for one, value in (guesses | {"mse_guess": 2.0}).items()},
            coords={"round": [0, 2], "final_round": 2},
        )
        np.testing.assert_allclose(count_diverged(ds)[name], [[0.9, guess]], err_msg=name)


def test_a_model_that_was_never_tested_has_no_guess() -> None:
    """Of the methods of a sweep only some have local models."""
    ds = xr.Dataset(
        {"local_test_accuracy": (("point", "trial", "round"), [[[0.1, 0.2]], [[np.nan] * 2]])}
        | {"diverged_round": (("point", "trial"), [[2.0], [2.0]])}
        | {"accuracy_guess": (("point", "trial"), [[0.2], [0.2]])},
        coords={"round": [0, 2], "final_round": ("point", [2, 2])},
    )
    found = count_diverged(ds)["local_test_accuracy"]
    np.testing.assert_allclose(found, [[[0.1, 0.2]], [[np.nan] * 2]])
