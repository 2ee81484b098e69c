"""Files are read as xarray reads them, whichever program wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from support.parts import TWO_AXES, make_parts, make_scenario

from otafl.results import netcdf
from otafl.results.files import read_part, write_part

pytestmark = pytest.mark.exact

SCENE = Path(netcdf.__file__).parents[1] / "channels" / "scenes" / "florence.nc"

Ways = list[str]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """Takes note of the readers that xarray is asked for."""
    out: Ways = []
    true = xr.open_dataset

    def noted(file: object, engine: str = "", **options: object) -> xr.Dataset:
        out.append(engine)
        return true(file, engine=engine or None, **options)

    monkeypatch.setattr(netcdf.xr, "open_dataset", noted)
    return out


def check_same(path: Path) -> None:
    """The same variables in the same order, with the same attributes, types and compression."""
    with xr.open_dataset(path, engine="h5netcdf") as wanted:
        wanted.load()
    with netcdf.open_file(path) as got:
        assert got["a"].dtype == wanted["a"].dtype if "a" in wanted else True
        got.load()
    xr.testing.assert_identical(got, wanted)
    assert list(got.variables) == list(wanted.variables)
    assert list(got.attrs) == list(wanted.attrs)
    assert got.encoding["unlimited_dims"] == wanted.encoding["unlimited_dims"]
    for name, variable in wanted.variables.items():
        assert got[name].dtype == variable.dtype
        other = got[name].encoding
        assert str({key: variable.encoding[key] for key in other}) == str(other), name


def test_a_part_is_read_as_xarray_reads_it(tmp_path: Path, ways: Ways) -> None:
    part = make_parts(make_scenario(TWO_AXES))[0]
    link = np.random.default_rng(0).normal(size=(*part["test_accuracy"].shape, 2))
    part["odd"] = (("point", "trial", "round", "segment"), np.where(link > 1, np.nan, link))
    part["count"] = ("segment", np.array([3, 4], dtype=np.int32))
    write_part(part.assign_attrs(stacks=[0, 2], note="ä"), tmp_path / "a.nc")
    check_same(tmp_path / "a.nc")
    assert ways == ["h5netcdf", ""]
    xr.testing.assert_identical(read_part(tmp_path / "a.nc").drop_attrs(), part.drop_attrs())


def test_a_scene_is_read_as_xarray_reads_it(ways: Ways) -> None:
    check_same(SCENE)
    assert ways == ["h5netcdf", ""]


def grouped(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.create_group("more")


def unlimited(path: Path) -> None:
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf", unlimited_dims=["x"])


def fixed_text(path: Path) -> None:
    values = np.array([b"ab", b"cd"])
    xr.Dataset({"a": ("x", values)}).to_netcdf(path, engine="h5netcdf")


def listed_text(path: Path) -> None:
    xr.Dataset({"a": ("x", [1.0])}, attrs={"words": ["a", "b"]}).to_netcdf(path, engine="h5netcdf")


def grid(path: Path) -> None:
    """A coordinate of two dimensions, called as one of them."""
    xr.Dataset({"a": (("x", "y"), np.ones((2, 3)))}).to_netcdf(path, engine="h5netcdf")
    with h5py.File(path, "a") as file:
        file["x2"] = np.ones(2)
        file["x2"].make_scale("x2")
        file["a"].dims[0].attach_scale(file["x2"])


@pytest.mark.parametrize("made", [grouped, unlimited, fixed_text, listed_text, grid])
def test_what_is_built_in_another_way_is_left_to_xarray(
    made: Callable[[Path], None], tmp_path: Path, ways: Ways
) -> None:
    shutil.copy(SCENE, tmp_path / "a.nc")
    made(tmp_path / "a.nc")
    check_same(tmp_path / "a.nc")
    assert ways == ["h5netcdf", "", "h5netcdf"]


def test_values_are_read_where_they_are_used(tmp_path: Path) -> None:
    """A slice reads no other chunk; a damaged one elsewhere is not noticed."""
    values = np.arange(1000.0).reshape(10, 100)
    encoding = {"a": {"chunksizes": (1, 100), "fletcher32": True}}
    xr.Dataset({"a": (("x", "y"), values)}).to_netcdf(
        tmp_path / "a.nc", engine="h5netcdf", encoding=encoding
    )
    with h5py.File(tmp_path / "a.nc") as file:
        place = file["a"].id.get_chunk_info(9).byte_offset
    with (tmp_path / "a.nc").open("r+b") as raw:
        raw.seek(place)
        raw.write(b"damaged!")
    with netcdf.open_file(tmp_path / "a.nc") as dataset:
        np.testing.assert_array_equal(dataset["a"][2:4, ::2], values[2:4, ::2])
        with pytest.raises(OSError, match="filter returned failure"):
            dataset["a"][9].load()
    with pytest.raises(OSError, match="filter returned failure"):
        netcdf.read(tmp_path / "a.nc")


def check_written(dataset: xr.Dataset, folder: Path) -> None:
    """The file is one that xarray would write."""
    numbers = [n for n, one in dataset.variables.items() if one.ndim and one.dtype.kind in "iuf"]
    encoding = {name: netcdf.CHECKED for name in numbers if dataset[name].size}
    dataset.to_netcdf(folder / "wanted.nc", engine="h5netcdf", encoding=encoding)
    netcdf.write(dataset, folder / "got.nc", in_memory=True)
    with (
        xr.open_dataset(folder / "wanted.nc", engine="h5netcdf") as wanted,
        xr.open_dataset(folder / "got.nc", engine="h5netcdf") as got,
        h5py.File(folder / "wanted.nc") as wanted_file,
        h5py.File(folder / "got.nc") as got_file,
    ):
        xr.testing.assert_identical(got.load(), wanted.load())
        assert list(got.variables) == list(wanted.variables)
        for name, variable in wanted.variables.items():
            kept = [{**one.encoding, "source": ""} for one in (got[name], variable)]
            assert str(kept[0]) == str(kept[1]), name
        assert set(got_file) == set(wanted_file)
        for name in wanted_file:
            said = [set(file[name].attrs) - {"_Netcdf4Dimid"} for file in (got_file, wanted_file)]
            assert said[0] == said[1], name


def test_a_part_is_written_as_xarray_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = make_parts(make_scenario(TWO_AXES))[0].assign_attrs(stacks=[0, 2], note="ä", share=0.5)
    part["whole"] = ("point", np.arange(part.sizes["point"], dtype=np.int32))
    part = part.assign_coords(text=("segment", np.array(["a", "ü b"])))
    part["number"] = 3.0
    used = []
    true = netcdf._content
    monkeypatch.setattr(netcdf, "_content", lambda *of: used.append(1) or true(*of))
    check_written(part, tmp_path)
    write_part(part, tmp_path / "again.nc")
    check_written(read_part(tmp_path / "again.nc"), tmp_path)
    assert used == [1, 1, 1]


@pytest.mark.parametrize(
    "dataset",
    [
        xr.Dataset({"a": ("x", np.zeros(0))}),
        xr.Dataset({"a": ("x", np.array([b"ab", b"c"]))}),
        xr.Dataset({"a": ("x", [True, False])}),
        xr.Dataset({"a": ("x", [1.0])}, attrs={"words": ["a", "b"], "none": ""}),
        xr.Dataset({"a": (("a", "y"), np.ones((2, 3)))}),
    ],
    ids=["nothing", "bytes", "booleans", "list of words", "called as a dimension"],
)
def test_anything_else_is_left_to_xarray(dataset: xr.Dataset, tmp_path: Path) -> None:
    check_written(dataset, tmp_path)
