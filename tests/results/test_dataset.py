"""Results: what a part of a sweep has, and parts combined."""

from __future__ import annotations

import numpy as np
import pytest
from support.parts import (
    ROUNDS,
    TWO_AXES,
    compute_value,
    make_parts,
    make_scenario,
    make_whole,
    record,
)

from otafl.results.dataset import Record, combine, describe_sweep, select_points, to_dataset
from otafl.results.files import SweepFile
from otafl.scenario import expand

pytestmark = pytest.mark.exact


def test_schema_of_a_part() -> None:
    scenario = make_scenario(TWO_AXES, seed=7)
    points = expand(scenario)
    part = to_dataset(record(points), points, scenario)
    assert part["test_accuracy"].dims == ("point", "trial", "round")
    assert part["tx_energy_j"].dims == ("point", "trial", "round", "device")
    assert part["stop_round"].dims == ("point", "trial")
    assert part["tx_energy_j"].attrs["units"] == "J"
    assert all(part[name].attrs["long_name"] for name in part.data_vars)
    np.testing.assert_array_equal(part["snr_db"], [0, 0, 10.5, 10.5, 20, 20])
    assert part["power"].values.tolist() == ["gbma", "ci"] * 3
    assert part["snr_db"].attrs["units"] == "dB"
    assert part["round"].values.tolist() == ROUNDS
    assert part.attrs["seed"] == 7
    assert part.attrs["complete"] == 1
    for name in ("otafl", "torch", "sionna", "numpy", "xarray"):
        assert part.attrs[f"{name}_version"][0].isdigit()
    assert part.attrs["device_name"]


def test_unknown_variables_and_wrong_shapes_are_refused() -> None:
    scenario = make_scenario()
    points = expand(scenario)
    with pytest.raises(ValueError, match="accuracy is not in"):
        to_dataset(Record([0], {"accuracy": np.zeros((1, 2, 1))}), points, scenario)
    with pytest.raises(ValueError, match=r"test_accuracy has shape \(1, 2\)"):
        to_dataset(Record([0], {"test_accuracy": np.zeros((1, 2))}), points, scenario)


@pytest.mark.parametrize("groups", [None, [[5, 0], [3, 1], [2, 4]]])
def test_points_find_their_place_however_they_were_stacked(groups: list | None) -> None:
    ds = make_whole(make_scenario(TWO_AXES), groups)
    assert ds["test_accuracy"].dims == ("snr_db", "power", "trial", "round")
    assert ds["tx_energy_j"].dims == ("snr_db", "power", "trial", "round", "device")
    assert ds["stop_round"].dims == ("snr_db", "power", "trial")
    assert ds.attrs["complete"] == 1
    for index, (snr, power) in enumerate((s, p) for s in (0, 10.5, 20) for p in ("gbma", "ci")):
        at = {"snr_db": snr, "power": power, "trial": 1, "round": 4}
        assert ds["test_accuracy"].sel(at) == compute_value(index, 1, 4)
        assert ds["tx_energy_j"].sel(at | {"device": 2}) == compute_value(index, 1, 4, 2)


def test_joules_of_many_devices_are_sums() -> None:
    """A point of more devices than are recorded each has their sum, and so have all of its sweep;
    alone, smaller ones have each device's.

    Fails if a sum is taken for that of each device, or what is missing counts as 0.
    """
    scenario = make_scenario({"devices.count": [2, 4]})
    axes = describe_sweep(scenario)
    few, many = make_parts(scenario)
    points = expand(scenario)[1:]
    whole = record(points).variables
    sums = whole | {"tx_energy_j": whole["tx_energy_j"].sum(3)}
    large = to_dataset(Record(list(ROUNDS), sums), points, scenario)
    assert large["tx_energy_j"].dims == ("point", "trial", "round")
    assert large["tx_energy_j"].attrs["long_name"] == "energy radiated so far, sum over devices"
    for parts in ([few, large], [large, few]):
        both = combine(parts, axes)["tx_energy_j"]
        assert both.dims == ("device_count", "trial", "round")
        assert both.attrs == large["tx_energy_j"].attrs
        expected = [
            compute_value(0, 1, 2, 0) + compute_value(0, 1, 2, 1),
            sum(compute_value(1, 1, 2, d) for d in range(4)),
        ]
        np.testing.assert_array_equal(both.sel(trial=1, round=2), expected)
    assert "device" in combine([few, many], axes)["tx_energy_j"].dims
    assert np.isnan(combine([large], axes)["tx_energy_j"].sel(device_count=2)).all()


def test_missing_points_are_nan_and_the_result_is_incomplete() -> None:
    ds = make_whole(make_scenario(TWO_AXES), [[1, 4]])
    assert ds.attrs["complete"] == 0
    known = ds["test_accuracy"].notnull().all(["trial", "round"])
    np.testing.assert_array_equal(known, [[False, True], [False, False], [True, False]])


def test_a_zip_axis_has_a_coordinate_for_each_key() -> None:
    zipped = [
        {"channel.snr_db": 0, "devices.count": 2},
        {"channel.snr_db": 10, "devices.count": 3},
    ]
    ds = make_whole(make_scenario({"zip": zipped, "power.name": ["gbma", "ci"]}))
    assert set(ds["test_accuracy"].dims) == {"zip", "power", "trial", "round"}
    assert ds["snr_db"].dims == ds["device_count"].dims == ("zip",)
    assert ds["device_count"].values.tolist() == [2, 3]
    one = ds.isel(zip=1).sel(power="ci", trial=0, round=0)["test_accuracy"]
    index = next(
        p.index
        for p in expand(make_scenario({"zip": zipped, "power.name": ["gbma", "ci"]}))
        if p.scenario.channel.snr_db == 10 and p.scenario.power.name == "ci"
    )
    assert one == compute_value(index, 0, 0)


def test_link_records_are_named_and_ragged_ones_padded() -> None:
    scenario = make_scenario({"devices.count": [2, 3]})
    parts = []
    for point in expand(scenario):
        k = point.scenario.devices.count
        shape = (1, 2, 4)
        h = np.arange(8 * k).reshape(*shape, 1, k) * (1 + 2j)
        link = {"h/0": h, "p/0": np.ones((*shape, 1, k), complex), "eta/0": np.ones((*shape, 1))}
        taken = record([point])
        parts.append(to_dataset(Record(ROUNDS, taken.variables, link), [point], scenario))
    ds = combine(parts, describe_sweep(scenario))
    assert ds["link_p_0_real"].dims[-2:] == ("segment_0", "device")
    assert ds["link_eta_0"].dims[-1] == "segment_0"
    assert all(ds[name].attrs.keys() == {"units", "long_name"} for name in ds if "link" in name)
    assert ds["link_h_0_imag"].attrs["long_name"].endswith("imaginary part")
    assert ds["link_round"].values.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(ds["link_h_0_imag"][1, 0, 1, 0], [6, 8, 10])
    np.testing.assert_array_equal(ds["link_h_0_imag"][0, 0, 1, 0], [4, 6, np.nan])


def test_trials_of_a_point_may_be_in_several_parts() -> None:
    """One point's trials in two parts, which end at different rounds; the other point has one.

    Fails if a part's rounds, devices, labels or units are taken from another, or the point that
    lacks a trial counts as whole.
    """
    scenario = make_scenario({"devices.count": [2, 3]}, trials=3)
    points = expand(scenario)
    first = to_dataset(record(points, trials=2), points, scenario, trials=[0, 1])
    taken = record(points[:1], [0, 2], trials=3).variables
    last = Record([0, 2], {name: values[:, 2:] for name, values in taken.items()})
    part = to_dataset(last, points[:1], scenario, trials=[2])
    for parts in ([first, part], [part, first]):
        ds = combine(parts, describe_sweep(scenario))
        assert ds["test_accuracy"].dims == ("device_count", "trial", "round")
        assert ds["round"].values.tolist() == ROUNDS
        assert ds["tx_energy_j"].attrs == first["tx_energy_j"].attrs
        assert ds["device_count"].values.tolist() == [2, 3]
        accuracy = ds["test_accuracy"]
        assert accuracy.sel(device_count=2, trial=2, round=2) == compute_value(0, 2, 2)
        assert accuracy.sel(device_count=3, trial=1, round=4) == compute_value(1, 1, 4)
        assert np.isnan(accuracy.sel(device_count=2, trial=2, round=4))
        assert np.isnan(accuracy.sel(device_count=3, trial=2)).all()
        assert ds["tx_energy_j"].sel(device_count=2, trial=2, round=2, device=1) == 221
        assert ds.attrs["complete"] == 0


def test_points_of_a_grown_sweep_find_their_places() -> None:
    """Points are known by their names, whatever numbers they had, and others are left out."""
    small = make_scenario({"channel.snr_db": [20, 0]})
    grown = make_scenario(TWO_AXES | {"power.name": ["gbma"]})
    (part,) = make_parts(small, [[0, 1]])
    sweep = SweepFile(
        attributes=describe_sweep(grown),
        names=[str(one["point_name"].values[0]) for one in make_parts(grown)],
        trials=2,
        sources={},
    )
    chosen = select_points(part, sweep)
    assert chosen is not None
    ds = combine([chosen], sweep.attributes)
    assert ds["snr_db"].values.tolist() == [0, 10.5, 20]
    for snr, number in ((0, 1), (20, 0)):
        at = {"power": "gbma", "snr_db": snr, "trial": 1, "round": 4}
        assert ds["test_accuracy"].sel(at) == compute_value(number, 1, 4)
    assert np.isnan(ds["test_accuracy"].sel(snr_db=10.5)).all()
    assert select_points(part, sweep.model_copy(update={"names": ["0" * 20]})) is None
