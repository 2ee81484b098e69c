"""What figures draw, number by number, and what is said where they cannot be drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from otafl.core.errors import UserError
from otafl.plots import MANY, curve_data, overview, plot
from otafl.results.variables import VARIABLES

AXES = {
    "snr_db": (np.array([0.0, 10.0, 20.0]), {"units": "dB", "long_name": "signal-to-noise ratio"}),
    "device_count": (np.array([10, 50]), {"units": "1", "long_name": "devices"}),
    "power": (np.array(["gbma", "ci"]), {"units": "1", "long_name": "power policy"}),
}
ROUNDS = [0, 10, 20]


def dataset(*names: str, trials: int = 3) -> xr.Dataset:
    """Variables over the named axes; each value is known from its place."""
    shape = [len(AXES[name][0]) for name in names]
    sizes = (*shape, trials, len(ROUNDS))
    accuracy = np.arange(np.prod(sizes), dtype=float).reshape(sizes) / 1000
    data = {
        "test_accuracy": accuracy,
        "aggregation_nmse": 10.0 ** -(1 + accuracy),
        "airtime_s": np.broadcast_to([0.0, 1.5, 3.0], sizes) + np.arange(trials)[:, None],
    }
    dims = (*names, "trial", "round")
    about = {n: {"units": VARIABLES[n].units, "long_name": VARIABLES[n].long_name} for n in data}
    ds = xr.Dataset({n: (dims, values, about[n]) for n, values in data.items()})
    ds["stop_round"] = (dims[:-1], np.full(sizes[:-1], np.nan))
    ds["diverged_round"] = (dims[:-1], np.full(sizes[:-1], np.nan))
    ds["device_local_test_accuracy"] = (("trial", "round", "device"), np.zeros((trials, 3, 4)))
    ds = ds.assign_coords({name: (name, *AXES[name]) for name in names})
    ends = np.full(shape, float(ROUNDS[-1]))
    return ds.assign_coords(
        trial=range(trials), round=ROUNDS, device=range(4), final_round=(names, ends)
    )


def test_mean_and_standard_deviation_over_trials_against_round() -> None:
    ds = dataset("power")
    data = curve_data(ds, "test_accuracy", "round", hue="power")
    assert data["mean"].dims == ("power", "round")
    of_gbma = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8]]) / 1000
    np.testing.assert_allclose(data["mean"][0], of_gbma.mean(0))
    np.testing.assert_allclose(data["std"][0], [0.003] * 3)
    np.testing.assert_array_equal(data["trials"], 3)


def test_the_last_round_is_taken_unless_x_is_the_round() -> None:
    data = curve_data(dataset("snr_db", "power"), "test_accuracy", "snr_db", "power")
    assert data["mean"].dims == ("power", "snr_db")
    # trials of gbma at 10 dB start at 18, those of ci at 27; the last of three rounds
    np.testing.assert_allclose(data["mean"].sel(snr_db=10), [0.023, 0.032])


def test_selection_of_values_and_of_a_round() -> None:
    ds = dataset("snr_db", "power")
    data = curve_data(ds, "test_accuracy", "snr_db", sel={"power": "ci", "round": "0"})
    np.testing.assert_allclose(data["mean"], [0.012, 0.030, 0.048])
    one = curve_data(ds, "test_accuracy", "round", sel={"power": "ci", "snr_db": 0, "trial": 2})
    np.testing.assert_allclose(one["mean"], [0.015, 0.016, 0.017])
    assert one["std"].isnull().all()


def test_a_diverged_trial_is_left_out_and_a_stopped_one_keeps_its_value() -> None:
    ds = dataset()
    ds["test_accuracy"][0, 2] = ds["test_accuracy"][1, 2] = np.nan
    ds["diverged_round"][0] = 20
    ds["stop_round"][1] = 10
    data = curve_data(ds, "test_accuracy", "round")
    np.testing.assert_array_equal(data["trials"], [3, 3, 2])
    assert data["mean"][2] == pytest.approx((0.004 + 0.008) / 2)
    figure = plot(ds, "test_accuracy", "round")
    assert figure.get_suptitle() == "without 1 trial from the round of divergence on"


def test_against_a_variable_over_rounds() -> None:
    data = curve_data(dataset("power"), "test_accuracy", "airtime_s", "power")
    np.testing.assert_allclose(data["at"].sel(power="ci"), [1.0, 2.5, 4.0])


def test_a_coordinate_of_a_zip_axis_can_be_drawn() -> None:
    ds = dataset("snr_db").rename_dims(snr_db="zip").drop_indexes("snr_db")
    ds = ds.assign_coords(zip=["a", "b", "c"])
    data = curve_data(ds, "test_accuracy", "snr_db")
    assert data["mean"].dims == ("snr_db",)
    assert data["snr_db"].values.tolist() == [0, 10, 20]


def test_what_is_drawn_is_the_curve_data(tmp_path: Path) -> None:
    ds = dataset("snr_db", "device_count", "power")
    figure = plot(ds, "test_accuracy", "snr_db", "power", "device_count", tmp_path / "f.png")
    data = curve_data(ds, "test_accuracy", "snr_db", "power", "device_count")
    assert len(figure.axes) == 2
    for i, ax in enumerate(figure.axes):
        assert ax.get_title() == f"devices: {(10, 50)[i]}"
        assert ax.get_xlabel() == "signal-to-noise ratio [dB]"
        assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "10", "20"]
        for j, line in enumerate(ax.get_lines()):
            np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20])
            np.testing.assert_array_equal(line.get_ydata(), data["mean"][i, j])
    assert figure.axes[0].get_ylabel() == "test accuracy of the global\nmodel"
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "power policy"
    assert [text.get_text() for text in legend.get_texts()] == ["gbma", "ci"]


def test_curves_differ_without_colour() -> None:
    ds = xr.concat([dataset("power")] * 10, "power", data_vars="minimal").assign_coords(
        power=[*"abcdefghijklmnopqrst"]
    )
    lines = plot(ds, "test_accuracy", "round", "power").axes[0].get_lines()
    looks = {(line.get_marker(), str(line._dash_pattern)) for line in lines[: 2 * MANY]}
    assert len(looks) == 2 * MANY
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 20


def test_error_is_drawn_on_a_logarithmic_axis() -> None:
    ax = plot(dataset("power"), "aggregation_nmse", "round", "power").axes[0]
    assert ax.get_yscale() == "log"
    assert ax.get_ylabel() == "normalised squared aggregation\nerror"


def test_choices_are_points_with_bars() -> None:
    ax = plot(dataset("power"), "test_accuracy", "power").axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["gbma", "ci"]
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), [0.005, 0.014])


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_files(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / "new" / f"f{suffix}"
    plot(dataset(), "test_accuracy", "round", path=path)
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"y": "test_accuracy", "x": "snr_db"},
            "test_accuracy also depends on power (gbma, ci); draw it with --hue power or "
            "--facet power, or pick one with --sel power=gbma",
        ),
        (
            {"y": "test_acuracy", "x": "round"},
            "--y test_acuracy: not a variable of this result; did you mean 'test_accuracy'?",
        ),
        (
            {"y": "test_accuracy", "x": "snr"},
            "snr: not a dim of test_accuracy; did you mean 'snr_db'?",
        ),
        (
            {"y": "test_accuracy", "x": "snr_db", "sel": {"powr": "ci"}},
            "--sel powr: not a dim of this result; did you mean 'power'?",
        ),
        (
            {"y": "test_accuracy", "x": "power", "sel": {"snr_db": "5"}},
            "--sel snr_db=5: no such value; snr_db has 0, 10, 20",
        ),
        (
            {"y": "test_accuracy", "x": "power", "sel": {"snr_db": "low"}},
            "--sel snr_db=low: no such value; snr_db has 0, 10, 20",
        ),
        (
            {"y": "test_accuracy", "x": "power", "hue": "power"},
            "--x, --hue and --facet must differ; got power, power",
        ),
        ({"y": "test_accuracy", "x": "round", "path": "f.jpg"}, "f.jpg: a figure's file must end"),
    ],
)
def test_what_cannot_be_drawn_is_explained(arguments: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        plot(dataset("snr_db", "power"), **arguments)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("names", "x", "curves", "panels"),
    [
        ((), "round", 1, 1),
        (("snr_db",), "round", 3, 1),
        (("power",), "round", 2, 1),
        (("snr_db", "power"), "signal-to-noise ratio [dB]", 2, 1),
        (("device_count", "power"), "round", 2, 2),
        (("snr_db", "device_count", "power"), "signal-to-noise ratio [dB]", 2, 2),
    ],
)
def test_overview(tmp_path: Path, names: tuple, x: str, curves: int, panels: int) -> None:
    figure = overview(dataset(*names), tmp_path / "o.png")
    assert len(figure.axes) == panels
    assert figure.axes[-1].get_xlabel() == x
    assert len(figure.axes[0].get_lines()) == curves
    assert (tmp_path / "o.png").stat().st_size > 1000


def test_overview_of_an_unfinished_sweep_and_of_more_axes_than_it_can_draw(tmp_path: Path) -> None:
    ds = dataset("snr_db", "device_count", "power").expand_dims(seed=[3, 4]).copy(deep=True)
    ds["test_accuracy"][:, 1] = np.nan
    figure = overview(ds, tmp_path / "o.png")
    assert figure.get_suptitle() == "devices: 10"
