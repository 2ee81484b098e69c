"""Heat maps, Pareto fronts, distributions and curves against costs: the numbers, by hand and by
brute force, and that the figure and the CSV show them."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.plot_bench import AXES, ramp, result
from matplotlib.colors import to_hex

from otafl.core.errors import UserError
from otafl.plots import (
    better,
    cdf_data,
    curve_data,
    draw,
    heatmap_data,
    pareto_data,
    table,
    write_csv,
)
from otafl.plots.directions import UNDIRECTED
from otafl.plots.fronts import non_dominated
from otafl.results.variables import VARIABLES


def csv_of(data: xr.Dataset, tmp_path: Path) -> pd.DataFrame:
    write_csv(data, tmp_path / "drawn.csv")
    return pd.read_csv(io.StringIO((tmp_path / "drawn.csv").read_text()))


def spenders() -> xr.Dataset:
    """Two policies, of which the second spends 1000 times as much; joules by device and cause."""
    accuracy = ramp("power")
    joules = np.ones((2, 2, 3, 4, 5)) * np.array([0.0, 1.0, 2.0])[:, None, None]
    joules = joules * np.array([1.0, 1000.0])[:, None, None, None, None]
    joules[:, 1] *= 3  # of the second trial
    joules[..., 3, :] = np.nan  # a device that is not there
    return result({"test_accuracy": accuracy, "device_energy_j": joules}, ["power"])


def test_joules_are_summed_over_devices_and_causes() -> None:
    data = curve_data(spenders(), "test_accuracy", "device_energy_j", "power")
    # 3 devices with 5 causes each, trials of 1 and 3 times as much
    np.testing.assert_allclose(data["at"][0], [0, 15 * 2, 15 * 4])
    np.testing.assert_allclose(data["at"][1], [0, 15 * 2000, 15 * 4000])
    said = "energy drawn so far, sum over devices and causes [J]"
    assert data.attrs["x_label"] == said
    np.testing.assert_allclose(data["mean"][0], [0.0015, 0.0025, 0.0035])
    np.testing.assert_allclose(data["std"][0], [0.003 / np.sqrt(2)] * 3)


def test_abscissae_over_decades_are_logarithmic_and_lose_their_zero(tmp_path: Path) -> None:
    data = curve_data(spenders(), "test_accuracy", "device_energy_j", "power")
    (ax,) = draw(data).axes
    assert ax.get_xscale() == "log"
    rows = csv_of(data, tmp_path)
    assert list(rows.columns[-4:]) == [
        *("device_energy_j", "test_accuracy", "test_accuracy_std", "trials")
    ]
    for line, (_, own) in zip(ax.get_lines(), rows.groupby("power", sort=False), strict=True):
        np.testing.assert_allclose(line.get_xdata(), own["device_energy_j"])
        np.testing.assert_allclose(line.get_ydata(), own["test_accuracy"])
    assert len(rows) == 4


def test_what_only_grows_with_the_rounds_stays_linear() -> None:
    seconds = np.broadcast_to([0.0, 0.001, 1.0], (2, 2, 3))
    ds = result({"test_accuracy": ramp("power"), "sim_time_s": seconds}, ["power"])
    assert draw(curve_data(ds, "test_accuracy", "sim_time_s", "power")).axes[0].get_xscale() == (
        "linear"
    )


def test_abscissae_are_of_the_trials_that_are_drawn() -> None:
    ds = spenders()
    ds["test_accuracy"][0, 1, 2] = np.nan  # the dearer trial diverged at the last record
    data = curve_data(ds, "test_accuracy", "device_energy_j", "power")
    np.testing.assert_allclose(data["at"][0], [0, 30, 30])
    np.testing.assert_array_equal(data["trials"][0], [2, 2, 1])


def test_a_trial_that_ended_early_keeps_its_accuracy_and_its_cost() -> None:
    ds = spenders()
    for name in ("test_accuracy", "device_energy_j"):
        ds[name][0, 1, 2] = np.nan
    ds["end_round"][0, 1] = 5
    data = curve_data(ds, "test_accuracy", "device_energy_j", "power")
    np.testing.assert_allclose(data["mean"][0], [0.0015, 0.0025, (0.002 + 0.004) / 2])
    np.testing.assert_allclose(data["at"][0], [0, 30, (30 + 45) / 2])


def test_causes_as_colours_are_summed_over_devices_alone() -> None:
    data = curve_data(spenders().isel(power=0), "device_energy_j", "round", "cause")
    assert data.attrs["y_label"] == "energy drawn so far, sum over devices [J]"
    np.testing.assert_allclose(data["mean"].sel(cause=2), [0, 6, 12])


def test_positions_of_a_joint_axis_are_spelled_out() -> None:
    ds = result({"test_accuracy": ramp("snr_db")}, ["snr_db"])
    power = ("zip", ["ci", "ci", "gbma"], {"long_name": "power policy"})
    ds = ds.rename_dims(snr_db="zip").drop_indexes("snr_db")
    ds = ds.assign_coords(zip=[0, 1, 2], power=power)
    figure = draw(curve_data(ds, "test_accuracy", "round", "zip"))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["0 dB, ci", "10 dB, ci", "20 dB, gbma"]
    with pytest.raises(UserError, match="power and snr_db move together in this result"):
        curve_data(ds, "test_accuracy", "snr_db", "power")
    picked = curve_data(ds, "test_accuracy", "round", sel={"zip": 1})
    np.testing.assert_allclose(picked["mean"], [0.0075, 0.0085, 0.0095])


def test_heat_map_has_each_value_in_its_cell(tmp_path: Path) -> None:
    ds = result({"test_accuracy": ramp("snr_db", "device_count", "power")}, list(AXES))
    data = heatmap_data(ds, "test_accuracy", "device_count", "snr_db", "power")
    assert data["mean"].dims == ("power", "snr_db", "device_count")
    figure = draw(data)
    for i, ax in enumerate(figure.axes[:2]):
        assert [text.get_text() for text in ax.get_xticklabels()] == ["2", "4"]
        written = {text.get_position(): float(text.get_text()) for text in ax.texts}
        for (row, snr), (column, count) in itertools.product(
            enumerate((0, 10, 20)), enumerate((2, 4))
        ):
            trials = ds["test_accuracy"].sel(snr_db=snr, device_count=count).isel(power=i, round=-1)
            assert written[(column, row)] == pytest.approx(float(trials.mean()), rel=0.005)
            assert float(data["mean"][i, row, column]) == pytest.approx(float(trials.mean()))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "10", "20"]
    assert "test accuracy" in figure.axes[2].get_ylabel()
    assert figure.axes[0].get_xlabel() == "devices in the population"
    assert figure.axes[0].get_ylabel() == "normalised SNR [dB]"
    rows = csv_of(data, tmp_path)
    assert len(rows) == 12
    one = rows[(rows["snr_db"] == 10) & (rows["device_count"] == 4) & (rows["power"] == "gbma")]
    assert one["test_accuracy"].item() == pytest.approx(0.0395)
    assert one["test_accuracy_std"].item() == pytest.approx(0.003 / np.sqrt(2))


def test_heat_map_takes_the_free_axes_and_hatches_what_is_missing(tmp_path: Path) -> None:
    ds = result({"test_accuracy": ramp("snr_db", "power")}, ["snr_db", "power"])
    ds["test_accuracy"][2, 1] = np.nan
    data = heatmap_data(ds, "test_accuracy")
    assert data["mean"].dims == ("power", "snr_db")
    ax = draw(data).axes[0]
    assert len(ax.texts) == 5
    assert ax.patch.get_hatch()
    assert len(csv_of(data, tmp_path)) == 5
    over_rounds = heatmap_data(ds, "test_accuracy", "round", sel={"power": "gbma"})
    np.testing.assert_allclose(over_rounds["mean"].sel(snr_db=10, round=5), 0.0145)


def test_colours_of_a_heat_map_grow_in_lightness_and_letters_contrast() -> None:
    ds = result({"test_accuracy": ramp("snr_db", "device_count")}, ["snr_db", "device_count"])
    ax = draw(heatmap_data(ds, "test_accuracy")).axes[0]
    (mesh,) = ax.collections

    def luminance(colour: object) -> float:
        rgb = np.asarray(colour)[:3]
        return float(np.where(rgb < 0.04, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ WEIGHTS)

    steps = [luminance(mesh.cmap(value)) for value in np.linspace(0, 1, 64)]
    assert (np.diff(steps) > 0).all()
    flat = mesh.get_array().ravel()
    columns = mesh.get_array().shape[1]
    for text in ax.texts:
        column, row = text.get_position()
        behind = luminance(mesh.to_rgba(flat[row * columns + column]))
        letter = {"#000000": 0.0, "#ffffff": 1.0}[to_hex(text.get_color())]
        dark, light = sorted((behind, letter))
        assert (light + 0.05) / (dark + 0.05) > 4.5


WEIGHTS = np.array([0.2126, 0.7152, 0.0722])


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
        assert non_dominated(x, y).tolist() == expected


def compared() -> xr.Dataset:
    """Accuracy and joules at the end of six points; each trial is 0.9 and 1.1 times the mean."""
    accuracy = np.array([[0.5, 0.2], [0.6, 0.7], [0.8, 0.1]])
    joules = np.array([[1.0, 2.0], [4.0, 4.0], [3.0, 9.0]])
    trials = np.array([0.9, 1.1])[:, None] * np.ones(3)
    energy = joules[..., None, None, None] / 4 * trials[..., None] * np.ones(4)
    values = {"test_accuracy": accuracy[..., None, None] * trials, "tx_energy_j": energy}
    return result(values, ["snr_db", "power"])


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
    assert [text.get_text() for text in ax.texts] == ["0 dB", "20 dB"]
    assert "lower is better" in ax.get_xlabel()
    assert "higher is better" in ax.get_ylabel()
    rows = csv_of(data, tmp_path)
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


def test_every_variable_is_known_to_be_better_one_way_or_to_be_neutral() -> None:
    known = {"test_accuracy": "higher", "charge_j": "higher", "test_loss": "lower"}
    known |= {"device_energy_j": "lower", "sim_time_s": "lower", "uplink_symbols": "lower"}
    known |= {"aggregation_nmse": "lower", "uplink_bits": "lower", "stop_round": "lower"}
    assert {name: better(name) for name in known} == known
    assert better("participants") is None
    undecided = [name for name in VARIABLES if better(name) is None and name not in UNDIRECTED]
    assert undecided == []


def test_distribution_by_hand(tmp_path: Path) -> None:
    own = np.full((2, 3, 4), np.nan)
    own[:, -1] = [[0.2, 0.4, 0.4, 0.8], [0.4, 0.6, np.nan, np.nan]]
    ds = result({"device_own_test_accuracy": own, "test_accuracy": ramp()})
    data = cdf_data(ds, "device_own_test_accuracy")
    np.testing.assert_allclose(data["value"], [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(data["share"], np.array([1, 4, 5, 6]) / 6)
    each = np.array([[0.25, 0.75, 0.75, 1.0], [0.0, 0.5, 1.0, 1.0]])
    np.testing.assert_allclose(data["std"], each.std(0, ddof=1))
    assert (int(data["devices"]), int(data["trials"])) == (6, 2)
    (ax,) = draw(data).axes
    (line,) = ax.get_lines()
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(line.get_xdata(), [0.2, 0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(line.get_ydata(), np.array([0, 1, 4, 5, 6]) / 6)
    rows = csv_of(data, tmp_path)
    np.testing.assert_allclose(rows["device_own_test_accuracy"], data["value"])
    np.testing.assert_allclose(rows["share"], data["share"])


def test_distributions_of_unequal_numbers_of_devices() -> None:
    own = np.full((2, 2, 3, 4), np.nan)
    own[0, :, -1, :2] = [[0.1, 0.3], [0.3, 0.5]]
    own[1, :, -1] = np.arange(8).reshape(2, 4) / 10
    ds = result({"device_own_test_accuracy": own, "tx_energy_j": own}, ["device_count"])
    data = cdf_data(ds, "device_own_test_accuracy", "device_count")
    np.testing.assert_array_equal(data["devices"], [4, 8])
    np.testing.assert_allclose(data["share"][0, :3], [0.25, 0.75, 1.0])
    assert data["share"][0, 3:].isnull().all()
    np.testing.assert_allclose(data["share"][1], np.arange(1, 9) / 8)
    assert len(table(data)) == 3 + 8


def test_one_trial_has_no_band_and_infinite_charge_no_step() -> None:
    charge = np.full((2, 3, 4), np.inf)
    charge[0, -1, :2] = [1.0, 2.0]
    ds = result({"charge_j": charge, "test_accuracy": ramp()})
    data = cdf_data(ds, "charge_j", sel={"trial": 0})
    np.testing.assert_allclose(data["share"], [0.25, 0.5])
    assert data["std"].isnull().all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ds: heatmap_data(ds, "acc"), "--z acc: not a variable of this result"),
        (
            lambda ds: heatmap_data(ds, "test_accuracy"),
            "a heat map needs two axes; those of test_accuracy with several values: snr_db; --x "
            "round or --y round draws it over the rounds",
        ),
        (
            lambda ds: heatmap_data(ds, "test_accuracy", "snr", "round"),
            "snr: not a dim of test_accuracy; did you mean 'snr_db'?",
        ),
        (
            lambda ds: heatmap_data(ds, "device_own_test_accuracy", "snr_db", "round"),
            "device_own_test_accuracy also depends on device (0, 1, 2, 3); draw it with --facet "
            "device, or pick one with --sel device=0",
        ),
        (
            lambda ds: pareto_data(ds, "test_accuracy", "participants"),
            "--x participants: whether higher or lower is better is not known, so there is no "
            "front; known for test_accuracy, tx_energy_j",
        ),
        (
            lambda ds: pareto_data(ds, "test_accuracy", "tx_energy_j", sel={"snr_db": 0}),
            "a Pareto front needs a sweep of two points at the least; here is one",
        ),
        (
            lambda ds: cdf_data(ds, "test_accuracy"),
            "--x test_accuracy: is not one value a device; take one of tx_energy_j, device_own",
        ),
        (
            lambda ds: cdf_data(ds, "tx_energy_j"),
            "tx_energy_j also depends on snr_db (0, 10, 20); draw it with --hue snr_db or --facet",
        ),
        (
            lambda ds: curve_data(ds, "test_accuracy", "device_own_test_accuracy", "snr_db"),
            "--x device_own_test_accuracy: is one for each device, so test_accuracy cannot be "
            "drawn against it; take a dim, or one of test_accuracy, tx_energy_j, participants, or",
        ),
        (
            lambda ds: curve_data(ds, "test_accuracy", "stop_round", "snr_db"),
            "--x stop_round: is no value round by round, so test_accuracy cannot be drawn",
        ),
    ],
)
def test_what_cannot_be_drawn_is_explained(call: object, said: str) -> None:
    values = {
        "test_accuracy": ramp("snr_db"),
        "tx_energy_j": ramp("snr_db", tail=(2, 3, 4)),
        "participants": ramp("snr_db"),
        "device_own_test_accuracy": ramp("snr_db", tail=(2, 3, 4)),
    }
    with pytest.raises(UserError) as caught:
        call(result(values, ["snr_db"]))
    assert str(caught.value).startswith(said)
