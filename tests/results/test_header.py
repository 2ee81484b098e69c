"""What a result says of itself, changed by somebody: refused in a sentence, or harmless."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.hostile_results import ODD_ORIGINS, iterate_changes
from support.parts import TWO_AXES, make_parts, make_scenario, make_whole

from otafl import report
from otafl.analysis.summary import print_environment, print_summary
from otafl.core.errors import UserError
from otafl.results import header, origins
from otafl.results.files import open_results, read_part, write_part

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return make_whole(make_scenario(TWO_AXES))


def read_everything(ds: xr.Dataset, folder: Path) -> None:
    """What the commands say of a result."""
    with contextlib.redirect_stdout(io.StringIO()):
        print_summary(ds, every=True)
        print_environment(ds)
    report.list_facts(ds)
    report.list_notices(ds)


def refusal(ds: xr.Dataset, folder: Path) -> str | None:
    """Read a result as the commands do; return the sentence where it is refused."""
    try:
        ds.attrs = header.check(ds)
        read_everything(ds, folder)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_every_change_is_refused_in_a_sentence_or_harmless(
    result: xr.Dataset, tmp_path: Path
) -> None:
    made = refused = 0
    for said, change in iterate_changes(result):
        try:
            changed = change(result)
        except ValueError:  # xarray holds no such data set
            continue
        made += 1
        fault = refusal(changed, tmp_path)
        refused += fault is not None
        assert fault is None or "\n" not in fault, said
    assert made > 200
    assert 100 < refused < made


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


def test_a_control_character_reaches_no_terminal(result: xr.Dataset) -> None:
    with pytest.raises(UserError, match="attribute title: expected a line of text"):
        header.check(result.assign_attrs(title="a\x1b[2Jb"))
    labels = np.array(["a\x1b[2J", "b"])
    with pytest.raises(UserError, match="variable power: expected lines of text"):
        header.check(result.assign_coords(power=("power", labels)))


def test_names_of_files_reach_a_terminal_as_text(result: xr.Dataset) -> None:
    odd = {"points": "0-3", "versions": {}, "sources": {"\x1b[2J.py": "5"}, "commit": "a" * 40}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        print_environment(result.assign_attrs(origins=json.dumps([odd])))
    assert "\x1b" not in said.getvalue()
    assert r"'\x1b[2J.py:' 5" in said.getvalue()
    assert f"otafl's commit: {'a' * 40}" in said.getvalue()


def test_origins_have_limits() -> None:
    for tree in ODD_ORIGINS.values():
        with pytest.raises(UserError, match="attribute origins: expected"):
            origins.read({"origins": json.dumps(tree)})


def test_a_bomb_of_aliases_is_not_unfolded(result: xr.Dataset) -> None:
    rows = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    bomb = f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{rows}"
    with pytest.raises(UserError, match="more than 50,000 values"):
        header.check(result.assign_attrs(scenario=bomb))


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
