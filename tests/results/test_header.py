"""What a result says of itself, changed by somebody: refused in a sentence, or harmless."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.parts import TWO_AXES, make_parts, make_scenario, make_whole

from otafl.analysis.summary import print_environment
from otafl.core.errors import UserError
from otafl.results import header, origins
from otafl.results.files import open_results, read_part, write_part

pytestmark = pytest.mark.exact

LINES = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
BOMB = f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{LINES}"


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return make_whole(make_scenario(TWO_AXES))


CHANGES = {
    "attribute title: expected a line of text": lambda ds: ds.assign_attrs(title="a\x1b[2Jb"),
    "attribute seed: expected a whole number, got 'x'": lambda ds: ds.assign_attrs(seed="x"),
    "attribute sweep: expected JSON text, got 7": lambda ds: ds.assign_attrs(sweep=7),
    "attribute scenario: expected a mapping": lambda ds: ds.assign_attrs(scenario="[1]"),
    "more than 50,000 values": lambda ds: ds.assign_attrs(scenario=BOMB),
    "variable power: expected text along": lambda ds: ds.assign_coords(power=[1, 2]),
    "variable power: expected lines of text": lambda ds: ds.assign_coords(power=["a\x1b[2J", "b"]),
    "variable snr_db: expected numbers along": lambda ds: ds.drop_vars("snr_db"),
    "variable round: expected numbers along": lambda ds: ds.assign_coords(
        round=np.full(ds.sizes["round"], np.nan)
    ),
    "variable trial: expected numbers along": lambda ds: ds.isel(trial=slice(0, 0)),
    "long_name of round: expected a line of text": lambda ds: ds.assign_coords(
        round=ds["round"].assign_attrs(long_name="\x1b[31mX")
    ),
    "variable test_accuracy: expected the dimensions trial, round": lambda ds: ds.mean("trial"),
    "variable test_accuracy: expected numbers, got": lambda ds: ds.assign(
        test_accuracy=ds["test_accuracy"].astype(str)
    ),
    "units of tx_energy_j: expected a line of text, got 3": lambda ds: ds.assign(
        tx_energy_j=ds["tx_energy_j"].assign_attrs(units=3)
    ),
}
"""Sentence -> change of a result that it refuses."""


def test_every_change_is_refused_in_a_sentence(result: xr.Dataset) -> None:
    faults = []
    for sentence, change in CHANGES.items():
        with xr.set_options(keep_attrs=True):
            changed = change(result)
        try:
            header.check(changed)
        except UserError as error:
            faults += [] if sentence in str(error) else [f"{sentence}: got {error}"]
        else:
            faults.append(f"{sentence}: not refused")
    assert not faults


def test_points_of_a_part_are_different() -> None:
    (part,) = make_parts(make_scenario(TWO_AXES), [[0, 1]])
    for index in ([0] * part.sizes["point"], np.arange(part.sizes["point"]) + 10**6):
        with pytest.raises(UserError, match="point_index: expected different numbers below"):
            header.check(part.assign_coords(point_index=("point", np.array(index))))


def test_what_otafl_writes_is_not_refused(result: xr.Dataset, tmp_path: Path) -> None:
    for ds in (result, *make_parts(make_scenario(TWO_AXES))):
        write_part(ds, tmp_path / "r.nc")
        again = read_part(tmp_path / "r.nc")
        assert again.attrs.keys() >= ds.attrs.keys()
        assert {type(value) for value in again.attrs.values()} <= {str, int}
    slice_ = result.isel(snr_db=[0], round=[-1])
    write_part(slice_, tmp_path / "slice.nc")
    assert open_results(tmp_path / "slice.nc").sizes["snr_db"] == 1


def test_the_file_and_the_attribute_are_named(result: xr.Dataset, tmp_path: Path) -> None:
    write_part(result.assign_attrs(sweep="[3]"), tmp_path / "r.nc")
    with pytest.raises(UserError, match=r"r\.nc: is damaged, .*attribute sweep: expected the axes"):
        open_results(tmp_path / "r.nc")


def test_names_of_files_reach_a_terminal_as_text(result: xr.Dataset) -> None:
    odd = {"points": "0-3", "versions": {}, "sources": {"\x1b[2J.py": "5"}, "commit": "a" * 40}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        print_environment(result.assign_attrs(origins=json.dumps([odd])))
    assert "\x1b" not in said.getvalue()
    assert r"'\x1b[2J.py:' 5" in said.getvalue()
    assert f"otafl's commit: {'a' * 40}" in said.getvalue()


@pytest.mark.parametrize(
    "one",
    [
        {"versions": {}},
        {"points": "0-99999999999", "versions": {}},
        {"points": "0-3", "versions": [1]},
        {"points": "0-3", "versions": {}, "commit": "\x1b[2J" + "a" * 40},
    ],
)
def test_origins_have_limits(one: dict[str, object]) -> None:
    with pytest.raises(UserError, match="attribute origins: expected"):
        origins.read({"origins": json.dumps([one])})


def test_rounds_that_do_not_rise_and_scaled_numbers_are_refused(
    result: xr.Dataset, tmp_path: Path
) -> None:
    """Either would give a wrong answer without a word."""
    path = tmp_path / "r.nc"
    back = result.isel(round=slice(None, None, -1))
    back.to_netcdf(path)
    with pytest.raises(UserError, match="variable round: expected numbers that rise"):
        read_part(path)
    name = next(iter(result.data_vars))
    encoding = {name: {"scale_factor": 0.5, "dtype": "float32"}}
    result.to_netcdf(path, encoding=encoding)
    with pytest.raises(UserError, match=f"variable {name}: expected numbers as they are"):
        read_part(path)
