"""Results: schema, combining, atomic writing, and what is said of files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml
from support.parts import ROUNDS, TWO_AXES, compute_value, make_parts, make_scenario, record

from otafl.core.errors import UserError
from otafl.results.dataset import combine, to_dataset, to_part
from otafl.results.end_values import select_final
from otafl.results.files import open_results, read_part, write_part
from otafl.results.record import Record
from otafl.results.variables import VARIABLES
from otafl.scenario import compute_scenario_hash, expand, load_scenario

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


def test_the_stored_scenario_is_the_one_that_ran(tmp_path: Path) -> None:
    scenario = make_scenario(TWO_AXES)
    write_part(make_parts(scenario)[0], tmp_path / "r.nc")
    attributes = read_part(tmp_path / "r.nc").attrs
    again = load_scenario(yaml.safe_load(attributes["scenario"]))
    assert (
        compute_scenario_hash(again)
        == attributes["scenario_hash"]
        == compute_scenario_hash(scenario)
    )


def test_every_variable_has_units_and_a_name() -> None:
    assert all(v.units and v.long_name and v.dims[0] == "trial" for v in VARIABLES.values())


def test_unknown_variables_and_wrong_shapes_are_refused() -> None:
    scenario = make_scenario()
    points = expand(scenario)
    with pytest.raises(ValueError, match="accuracy is not in"):
        to_dataset(Record([0], {"accuracy": np.zeros((1, 2, 1))}), points, scenario)
    with pytest.raises(ValueError, match=r"test_accuracy has shape \(1, 2\)"):
        to_dataset(Record([0], {"test_accuracy": np.zeros((1, 2))}), points, scenario)


@pytest.mark.parametrize("groups", [None, [[0, 1, 2, 3, 4, 5]], [[5, 0], [3, 1], [2, 4]]])
def test_points_find_their_place_however_they_were_stacked(groups: list | None) -> None:
    ds = combine(make_parts(make_scenario(TWO_AXES), groups))
    assert ds["test_accuracy"].dims == ("snr_db", "power", "trial", "round")
    assert ds["tx_energy_j"].dims == ("snr_db", "power", "trial", "round", "device")
    assert ds["stop_round"].dims == ("snr_db", "power", "trial")
    assert ds.attrs["complete"] == 1
    for index, (snr, power) in enumerate((s, p) for s in (0, 10.5, 20) for p in ("gbma", "ci")):
        at = {"snr_db": snr, "power": power, "trial": 1, "round": 4}
        assert ds["test_accuracy"].sel(at) == compute_value(index, 1, 4)
        assert ds["tx_energy_j"].sel(at | {"device": 2}) == compute_value(index, 1, 4, 2)


def test_one_point_has_no_axis_and_a_one_axis_sweep_has_one() -> None:
    assert combine(make_parts(make_scenario()))["test_accuracy"].dims == ("trial", "round")
    ds = combine(make_parts(make_scenario({"channel.snr_db": [5, 0]})))
    assert ds["test_accuracy"].dims == ("snr_db", "trial", "round")
    assert ds["test_accuracy"].sel(snr_db=0, trial=0, round=0) == compute_value(1, 0, 0)


def test_ragged_device_counts_are_padded_with_nan() -> None:
    sweep = {"devices.count": [2, 4], "channel.snr_db": [0, 10]}
    ds = combine(make_parts(make_scenario(sweep), [[2, 3], [0, 1]]))
    energy = ds["tx_energy_j"].sel(snr_db=10, trial=0, round=2)
    expected = [[compute_value(1, 0, 2, d) for d in range(2)] + [np.nan] * 2]
    expected += [[compute_value(3, 0, 2, d) for d in range(4)]]
    np.testing.assert_array_equal(energy, expected)
    assert ds["device_count"].values.tolist() == [2, 4]
    assert ds.attrs["complete"] == 1


def test_joules_of_many_devices_are_sums() -> None:
    """A point of more devices than are recorded each has their sum, and so have all of its sweep;
    alone, smaller ones have each device's.

    Fails if a sum is taken for that of each device, or what is missing counts as 0.
    """
    scenario = make_scenario({"devices.count": [2, 4]})
    few, many = make_parts(scenario)
    points = expand(scenario)[1:]
    whole = record(points).variables
    sums = whole | {"tx_energy_j": whole["tx_energy_j"].sum(3)}
    large = to_dataset(Record(list(ROUNDS), sums), points, scenario)
    assert large["tx_energy_j"].dims == ("point", "trial", "round")
    assert large["tx_energy_j"].attrs["long_name"] == "energy radiated so far, sum over devices"
    for parts in ([few, large], [large, few]):
        both = combine(parts)["tx_energy_j"]
        assert both.dims == ("device_count", "trial", "round")
        assert both.attrs == large["tx_energy_j"].attrs
        expected = [
            compute_value(0, 1, 2, 0) + compute_value(0, 1, 2, 1),
            sum(compute_value(1, 1, 2, d) for d in range(4)),
        ]
        np.testing.assert_array_equal(both.sel(trial=1, round=2), expected)
    assert "device" in combine([few, many])["tx_energy_j"].dims
    assert np.isnan(combine([large])["tx_energy_j"].sel(device_count=2)).all()


def test_missing_points_are_nan_and_the_result_is_incomplete() -> None:
    ds = combine(make_parts(make_scenario(TWO_AXES), [[1, 4]]))
    assert ds.attrs["complete"] == 0
    known = ds["test_accuracy"].notnull().all(["trial", "round"])
    np.testing.assert_array_equal(known, [[False, True], [False, False], [True, False]])


def test_an_unfinished_part_makes_the_result_incomplete() -> None:
    scenario = make_scenario()
    points = expand(scenario)
    half = Record([0, 2], record(points, [0, 2]).variables, complete=False)
    assert combine([to_dataset(half, points, scenario)]).attrs["complete"] == 0


@pytest.mark.parametrize(
    "sweep",
    [
        {},
        {"channel.snr_db": [5, 0]},
        TWO_AXES,
        {"devices.count": [2, 3], "power": ["gbma", "ci"]},
        {"zip": [{"channel.snr_db": 0, "seed": 1}, {"channel.snr_db": 5, "seed": 2}]},
    ],
)
def test_a_result_is_a_part_of_all_its_points(sweep: dict) -> None:
    whole = combine(make_parts(make_scenario(sweep)))
    part = to_part(whole)
    assert all(values.dims[0] == "point" for values in part.data_vars.values())
    xr.testing.assert_identical(combine([part]), whole)


def test_a_zip_axis_has_a_coordinate_for_each_key() -> None:
    zipped = [
        {"channel.snr_db": 0, "devices.count": 2},
        {"channel.snr_db": 10, "devices.count": 3},
    ]
    ds = combine(make_parts(make_scenario({"zip": zipped, "power.name": ["gbma", "ci"]})))
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


def test_points_may_end_at_different_rounds() -> None:
    scenario = make_scenario({"training.rounds": [2, 4]})
    points = expand(scenario)
    short = to_dataset(record(points[:1], [0, 2]), points[:1], scenario)
    ds = combine([to_dataset(record(points[1:]), points[1:], scenario), short])
    assert ds["round"].values.tolist() == ROUNDS
    assert np.isnan(ds["test_accuracy"].sel(rounds=2, trial=0, round=4))
    ends = select_final(ds, "test_accuracy").sel(trial=1)
    np.testing.assert_array_equal(ends, [compute_value(0, 1, 2), compute_value(1, 1, 4)])


def test_final_is_at_the_target_for_a_trial_that_reached_it_and_nan_after_divergence() -> None:
    scenario = make_scenario(trials=3)
    points = expand(scenario)
    accuracy = np.array([[[0.1, 0.5, 0.6], [0.1, 0.9, np.nan], [0.1, 0.2, np.nan]]])
    stop = np.array([[np.nan, 2, np.nan]])
    taken = Record(ROUNDS, {"test_accuracy": accuracy, "stop_round": stop})
    ds = combine([to_dataset(taken, points, scenario)])
    np.testing.assert_array_equal(select_final(ds, "test_accuracy"), [0.6, 0.9, np.nan])


def test_link_records_are_named_and_ragged_ones_padded() -> None:
    scenario = make_scenario({"devices.count": [2, 3]})
    parts = []
    for point in expand(scenario):
        k = point.scenario.devices.count
        shape = (1, 2, 4)
        h = np.arange(8 * k).reshape(*shape, 1, k) * (1 + 2j)
        link = {"h/0": h, "p/0": np.ones((*shape, 1, k), complex), "eta/0": np.ones((*shape, 1))}
        taken = record([point])
        parts.append(to_dataset(Record(ROUNDS, taken.variables, True, link), [point], scenario))
    ds = combine(parts)
    assert ds["link_p_0_real"].dims[-2:] == ("segment_0", "device")
    assert ds["link_eta_0"].dims[-1] == "segment_0"
    assert ds["link_round"].values.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(ds["link_h_0_imag"][1, 0, 1, 0], [6, 8, 10])
    np.testing.assert_array_equal(ds["link_h_0_imag"][0, 0, 1, 0], [4, 6, np.nan])


def test_written_and_opened_from_a_file_and_from_a_folder(tmp_path: Path) -> None:
    parts = make_parts(make_scenario(TWO_AXES), [[0, 3], [1, 2], [4, 5]])
    for i, part in enumerate(parts):
        write_part(part, tmp_path / "parts" / f"{i:05d}.nc")
    whole = combine(parts)
    xr.testing.assert_identical(open_results(tmp_path), whole)
    write_part(whole, tmp_path / "whole.nc")
    xr.testing.assert_identical(open_results(tmp_path / "whole.nc"), whole)
    one = open_results(tmp_path / "parts" / "00001.nc")
    assert one.attrs["complete"] == 0
    assert one.sizes == whole.sizes


def test_labels_are_whole_after_two_results_are_joined_and_written(tmp_path: Path) -> None:
    labels = (["gbma"], [{"name": "tci", "threshold": 0.25}])
    for place, power in enumerate(labels):
        axes = {"channel.snr_db": [0, 10], "power": power}
        write_part(combine(make_parts(make_scenario(axes))), tmp_path / f"{place}.nc")
    both = xr.concat([open_results(tmp_path / f"{place}.nc") for place in (0, 1)], dim="power")
    both.to_netcdf(tmp_path / "both.nc", engine="h5netcdf")
    again = open_results(tmp_path / "both.nc")
    assert again["power"].values.tolist() == ["gbma", "tci(threshold=0.25)"]


def test_large_results_are_read_lazily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts(make_scenario(TWO_AXES))
    for i, part in enumerate(parts):
        write_part(part, tmp_path / "parts" / f"{i:05d}.nc")
    monkeypatch.setattr("otafl.results.files.LAZY_ABOVE_BYTES", 0)
    ds = open_results(tmp_path)
    assert ds["test_accuracy"].chunks is not None
    xr.testing.assert_identical(ds.compute(), combine(parts))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "r.nc"
    part = make_parts(make_scenario())[0]
    write_part(part, path)
    before = path.read_bytes()

    true = Path.write_bytes

    def half(self: Path, data: bytes) -> None:
        true(self, bytes(data)[:100])
        raise error

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises((KeyboardInterrupt, UserError)) as caught:
        write_part(part, path)
    if caught.type is UserError:
        assert str(caught.value) == f"{path}: cannot be written: No space left on device"
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.nc"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_part(make_parts(make_scenario())[0], tmp_path / "file" / "r.nc")


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("round,accuracy\n")
    else:
        places = [i for i in range(len(data) - 8) if data[i : i + 2] == b"\x78\x01"]
        data[places[0] + 6] ^= 0x10  # in the midst of a compressed block
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["truncated", "empty", "text", "bit flipped"])
def test_a_damaged_part_is_named_with_what_to_do(tmp_path: Path, kind: str) -> None:
    for i, part in enumerate(make_parts(make_scenario(TWO_AXES))):
        write_part(part, tmp_path / "parts" / f"{i:05d}.nc")
    bad = tmp_path / "parts" / "00003.nc"
    damage(bad, kind)
    with pytest.raises(UserError) as caught:
        open_results(tmp_path)
    assert str(bad) in str(caught.value)
    assert "is damaged" in str(caught.value)
    assert "; run the same command again: only what it held is computed" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_or_not_ours_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such file"):
        open_results(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no finished parts"):
        open_results(tmp_path)
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(UserError, match=r"foreign\.nc: is a NetCDF file, but no otafl result"):
        open_results(tmp_path / "foreign.nc")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.yaml", "name: x\n", "s.yaml: is a scenario; `otafl run {}` or `otafl sweep {}` makes"),
        ("s.yml", "name: [\n", "s.yml: is a scenario"),
        ("noted", "name: x\nseed: 1\n", "noted: is a scenario"),
        ("other", "name: x\nversion: 1\n", "other: is no result of otafl; give a file that"),
        ("t.csv", "round,accuracy\n", "t.csv: is no result of otafl"),
        ("empty.nc", "", "empty.nc: is no result of otafl"),
        ("folder.nc", None, "folder.nc: is a folder; give a result file or the folder of an"),
    ],
)
def test_what_is_no_result_is_told_what_it_is(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    path = tmp_path / name
    path.mkdir() if text is None else path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_part(path)
    assert said.format(path, path) in str(caught.value)
    assert "delete" not in str(caught.value)


def test_parts_of_two_scenarios_are_not_mixed(tmp_path: Path) -> None:
    for i, seed in enumerate((0, 1)):
        write_part(make_parts(make_scenario(seed=seed))[0], tmp_path / "parts" / f"{i:05d}.nc")
    with pytest.raises(UserError, match=r"1\.nc: belongs to another scenario than 00000\.nc"):
        open_results(tmp_path)


def test_temporary_files_are_not_taken_for_parts(tmp_path: Path) -> None:
    write_part(make_parts(make_scenario())[0], tmp_path / "parts" / "00000.nc")
    (tmp_path / "parts" / ".1.nc.99.tmp").write_bytes(b"half")
    assert open_results(tmp_path).attrs["complete"] == 1
