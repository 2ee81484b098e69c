"""What curves draw, number by number, and what is said where they cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from support.plot_bench import make_dataset

from otafl.core.errors import UserError
from otafl.plots import curve_data, draw

pytestmark = pytest.mark.exact


def plot(ds: xr.Dataset, *axes: str, path: Path | str | None = None, **more: Any) -> Figure:
    return draw(curve_data(ds, *axes, **more), path)


def test_mean_and_standard_deviation_over_trials_against_round() -> None:
    ds = make_dataset("power")
    data = curve_data(ds, "test_accuracy", "round", hue="power")
    assert data["mean"].dims == ("power", "round")
    of_gbma = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8]]) / 1000
    np.testing.assert_allclose(data["mean"][0], of_gbma.mean(0))
    np.testing.assert_allclose(data["std"][0], [0.003] * 3)
    np.testing.assert_array_equal(data["trials"], 3)


def test_values_beyond_an_axis_are_left_out(tmp_path: Path) -> None:
    """Of a model that diverged, whose perplexity is infinite or near the largest float."""
    ds = make_dataset("power")
    ds["test_loss"] = ds["test_accuracy"] + 1.0
    ds["test_loss"][0, :, 1:] = [np.inf, 1e264]
    data = curve_data(ds, "test_loss", "round", hue="power")
    assert data["drawn"][0].values.tolist() == [True, False, False]
    assert data["drawn"][1:].all()
    draw(data, tmp_path / "a.png")


def test_the_last_round_is_taken_unless_x_is_the_round() -> None:
    data = curve_data(make_dataset("snr_db", "power"), "test_accuracy", "snr_db", "power")
    assert data["mean"].dims == ("power", "snr_db")
    # trials of gbma at 10 dB start at 18, those of tci at 27; the last of three rounds
    np.testing.assert_allclose(data["mean"].sel(snr_db=10), [0.023, 0.032])


def test_a_diverged_trial_guesses_and_a_stopped_one_keeps_its_value() -> None:
    ds = make_dataset()
    ds["test_accuracy"][0, 2] = ds["test_accuracy"][1, 2] = np.nan
    ds["diverged_round"][0] = 10
    ds["stop_round"][1] = 5
    data = curve_data(ds, "test_accuracy", "round")
    np.testing.assert_array_equal(data["trials"], [3, 3, 3])
    assert data["mean"][2] == pytest.approx((0.0 + 0.004 + 0.008) / 3)
    figure = plot(ds, "test_accuracy", "round")
    said = (
        "1 of 3 trials diverged in round 10: metrics count as the untrained model's, "
        "all else is left out"
    )
    spread = "shading: mean ± one standard deviation, n = 3 trials"
    assert " ".join(figure.get_suptitle().split()) == f"{said} {spread}"


def test_what_is_drawn_is_the_curve_data(tmp_path: Path) -> None:
    ds = make_dataset("snr_db", "device_count", "power")
    figure = plot(ds, "test_accuracy", "snr_db", "power", "device_count", path=tmp_path / "f.png")
    data = curve_data(ds, "test_accuracy", "snr_db", "power", "device_count")
    assert len(figure.axes) == 2
    for i, ax in enumerate(figure.axes):
        assert ax.get_title() == f"devices in the population: {(2, 4)[i]}"
        assert ax.get_xlabel() == "normalised SNR [dB]"
        assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "10", "20"]
        for j, line in enumerate(ax.get_lines()):
            np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20])
            np.testing.assert_array_equal(line.get_ydata(), data["mean"][i, j])
    assert figure.axes[0].get_ylabel() == "test accuracy of the global\nmodel"
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "power policy"
    assert [text.get_text() for text in legend.get_texts()] == ["gbma", "tci(threshold=0.3)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"y": "test_accuracy", "x": "snr_db"},
            "test_accuracy also depends on power (gbma, tci(threshold=0.3)); draw it with --hue "
            "power or --facet power, or pick one with --sel power=gbma",
        ),
        (
            {"y": "test_acuracy", "x": "round"},
            "--y test_acuracy: not a variable of this result; did you mean 'test_accuracy'?",
        ),
        (
            {"y": "test_accuracy", "x": "snr_db", "sel": {"powr": "gbma"}},
            "--sel powr: not a dim of this result; did you mean 'power'?",
        ),
        (
            {"y": "test_accuracy", "x": "power", "sel": {"snr_db": "5"}},
            "--sel snr_db=5: no such value; snr_db has 0, 10, 20",
        ),
        (
            {"y": "test_accuracy", "x": "power", "hue": "power"},
            "--x, --hue and --facet must differ; got power, power",
        ),
        (
            {"y": "test_accuracy", "hue": "power", "facet": "snr_db", "path": "f.jpg"},
            "f.jpg: a figure's file must end",
        ),
    ],
)
def test_what_cannot_be_drawn_is_explained(arguments: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        plot(make_dataset("snr_db", "power"), **arguments)
    assert str(caught.value).startswith(said)
