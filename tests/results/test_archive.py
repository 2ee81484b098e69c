"""The archive of a result opens as otafl's own files and as an RO-Crate."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import otafl
from otafl.core.errors import UserError
from otafl.results.archive import write_archive

SCENARIO: dict[str, Any] = {
    "name": "small",
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 3},
    "training": {"rounds": 2},
    "sweep": {"power.name": ["gbma", "tci"]},
    "output": {"save_models": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result and its archive, unpacked."""
    folder = tmp_path_factory.mktemp("archive")
    otafl.run(SCENARIO, out=folder / "small.nc")
    write_archive(folder / "small.nc", folder / "a.zip", ["Ada Lovelace", "ZF"], "CC-BY-4.0")
    zipfile.ZipFile(folder / "a.zip").extractall(folder / "unpacked")
    return folder


def test_every_file_is_described_and_opens(folder: Path) -> None:
    home = folder / "unpacked"
    crate = json.loads((home / "ro-crate-metadata.json").read_text())
    entities = {one["@id"]: one for one in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    root = entities["./"]
    described = {one["@id"] for one in root["hasPart"]}
    there = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert there == described | {"ro-crate-metadata.json"}
    assert len([name for name in there if name.endswith(".pt")]) == 2
    for key in ("author", "hasPart"):
        assert all(one["@id"] in entities for one in root[key])
    assert otafl.open_results(home / "small.nc").identical(otafl.open_results(folder / "small.nc"))
    again = otafl.load_scenario(home / "scenario.yaml")
    assert again.sweep == SCENARIO["sweep"]
    assert yaml.safe_load((home / "CITATION.cff").read_text())["authors"][1] == {"name": "ZF"}


def test_the_python_library_of_ro_crates_reads_it(folder: Path) -> None:
    rocrate = pytest.importorskip("rocrate.rocrate")
    crate = rocrate.ROCrate(folder / "a.zip")
    assert crate.name == "small"
    assert {one.id for one in crate.get_by_type("File")} >= {"small.nc", "scenario.yaml"}
    (run,) = crate.get_by_type("CreateAction")
    (program,) = run["instrument"]
    assert program["version"] == otafl.__version__


def test_a_sweeps_folder_becomes_one_file(tmp_path: Path) -> None:
    otafl.sweep(SCENARIO, tmp_path / "parts")
    write_archive(tmp_path / "parts", tmp_path / "a.zip", ["A"], "CC0-1.0")
    assert {"parts.nc", "parts.nc.sha256"} <= {*zipfile.ZipFile(tmp_path / "a.zip").namelist()}


@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_another_or_a_taken_name_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"expected a new file that ends in .zip"):
        write_archive(folder / "small.nc", folder / name, ["A"], "CC0-1.0")


def test_an_unfinished_result_is_refused(folder: Path, tmp_path: Path) -> None:
    part = otafl.open_results(folder / "small.nc").load()
    part.attrs["complete"] = 0
    part.to_netcdf(tmp_path / "half.nc", engine="h5netcdf")
    with pytest.raises(UserError, match=r"is unfinished"):
        write_archive(tmp_path / "half.nc", tmp_path / "b.zip", ["A"], "CC0-1.0")
