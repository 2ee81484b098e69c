"""Files of results: whole or absent, read back as they were, and told where they cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.parts import TWO_AXES, make_parts, make_scenario, make_whole, write_folder

from otafl.core import checksums
from otafl.core.errors import DamagedError, UserError
from otafl.results import files
from otafl.results.files import open_part, open_results, read_part, write_part

pytestmark = pytest.mark.exact


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """As an xarray without otafl reads it; checksums of HDF5 cover each array of numbers."""
    whole = make_whole(make_scenario(TWO_AXES | {"devices.count": [2, 3]}))
    write_part(whole, tmp_path / "r.nc")
    assert list_names(tmp_path) == ["r.nc", "r.nc.sha256"]
    xr.testing.assert_identical(read_part(tmp_path / "r.nc"), whole)
    xr.testing.assert_identical(open_results(tmp_path / "r.nc"), whole)
    with xr.open_dataset(tmp_path / "r.nc") as plain:
        np.testing.assert_array_equal(plain["tx_energy_j"], whole["tx_energy_j"])
        assert plain["power"].values.tolist() == ["gbma", "ci"]
        assert plain["tx_energy_j"].encoding["fletcher32"]
    (tmp_path / "r.nc").rename(tmp_path / "moved.nc")
    with open_part(tmp_path / "moved.nc") as moved:
        assert moved.attrs == whole.attrs


def test_a_folder_is_opened_as_one_result(tmp_path: Path) -> None:
    scenario, groups = make_scenario(TWO_AXES), [[0, 3], [1, 2], [4, 5]]
    paths = write_folder(scenario, tmp_path, groups)
    (tmp_path / "parts" / ".0000000000000009.nc.99.tmp").write_bytes(b"half")
    (tmp_path / "parts" / "mine.nc").write_bytes(b"of somebody else")
    whole = make_whole(scenario, groups)
    xr.testing.assert_identical(open_results(tmp_path), whole)
    one = open_results(paths[1])
    assert one.attrs["complete"] == 0
    assert one.sizes == whole.sizes


def test_large_results_are_read_lazily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make_scenario(TWO_AXES)
    write_folder(scenario, tmp_path)
    write_part(make_whole(scenario), tmp_path / "whole.nc")
    monkeypatch.setattr(files, "LAZY_ABOVE_BYTES", 0)
    for source in (tmp_path, tmp_path / "whole.nc"):
        ds = open_results(source)
        assert ds["test_accuracy"].chunks is not None
        xr.testing.assert_identical(ds.compute(), make_whole(scenario))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "r.nc"
    part = make_parts(make_scenario())[0]
    write_part(part, path)
    before = path.read_bytes()

    def write_half(self: xr.Dataset, place: Path, **options: object) -> None:
        place.write_bytes(before[:100])
        raise error

    monkeypatch.setattr(xr.Dataset, "to_netcdf", write_half)
    with pytest.raises((KeyboardInterrupt, UserError)) as caught:
        write_part(part, path)
    if caught.type is not KeyboardInterrupt:
        assert str(caught.value) == f"{path}: cannot be written: No space left on device"
    assert path.read_bytes() == before
    assert list_names(tmp_path) == ["r.nc", "r.nc.sha256"]
    assert checksums.check(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_part(make_parts(make_scenario())[0], tmp_path / "file" / "r.nc")


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_damaged_part_is_named_with_a_remedy(tmp_path: Path, has_checksum: bool) -> None:
    """By its checksum, or, without one, by HDF5 and the checksums of its arrays."""
    bad = write_folder(make_scenario(TWO_AXES), tmp_path)[3]
    if not has_checksum:
        checksums.forget(bad)
    whole = bad.read_bytes()
    place = whole.index(b"\x78\x01") + 6  # in the midst of a compressed block
    flipped = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
    for data in (whole[: len(whole) // 2], b"round,accuracy\n", flipped):
        bad.write_bytes(data)
        with pytest.raises(DamagedError) as caught:
            open_results(tmp_path)
        assert str(caught.value).startswith(f"{bad}: is damaged (")
        assert "; run the same command again: only what it held is computed" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    later = make_whole(make_scenario()).assign_attrs(format=99, otafl_version="7.0")
    write_part(later, tmp_path / "r.nc")
    with pytest.raises(UserError, match=r"r\.nc: was written by otafl 7\.0 in a format that"):
        read_part(tmp_path / "r.nc")


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such file"):
        open_results(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no finished parts"):
        open_results(tmp_path)
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "foreign.nc")
    with pytest.raises(UserError, match=r"foreign\.nc: is a NetCDF file, but no otafl result"):
        open_results(tmp_path / "foreign.nc")


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    for name, text, said in (
        ("s.yaml", "name: x\n", "s.yaml: is a scenario; `otafl run {}` or `otafl sweep {}` makes"),
        ("other", "name: x\nseed: 1\n", "other: is no result of otafl; give a file that"),
        ("empty.nc", "", "empty.nc: is no result of otafl"),
        ("folder.nc", None, "folder.nc: is a folder; give a result file or the folder of an"),
    ):
        path = tmp_path / name
        path.mkdir() if text is None else path.write_text(text)
        with pytest.raises(UserError) as caught:
            read_part(path)
        assert said.format(path, path) in str(caught.value)
