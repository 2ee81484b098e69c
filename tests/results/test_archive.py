"""The archive of a result opens as otafl's own files and as an RO-Crate."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import otafl
from otafl.core.errors import UserError
from otafl.results.archive import write_archive
from otafl.user_code.sources import hash_code

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


POLICY = """# {remark}
from dataclasses import replace
from halves import HALF
from otafl.power.equal_power import Gbma

class Half(Gbma):
    def compute_coefficients(self, state, link):
        state, found = super().compute_coefficients(state, link)
        return state, replace(found, p=HALF * found.p)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A result of own modules and three traces, two of one name; no point reads a fourth one."""
    lab = tmp_path_factory.mktemp("lab")
    generator = np.random.default_rng(3)
    traces = [lab / one / "a trace.npy" for one in ("far", "near")]
    for path in (*traces, lab / "third.npy"):
        path.parent.mkdir(exist_ok=True)
        np.save(path, generator.normal(size=(4, 3)) + 1j)
    (lab / "secret.npy").write_bytes((lab / "third.npy").read_bytes())
    (lab / "own_power.py").write_text(POLICY.format(remark="before"))
    (lab / "halves.py").write_text("HALF = 0.5")
    channels = [{"name": "trace", "path": str(path)} for path in traces]
    scenario = SCENARIO | {
        "channel": {"name": "trace", "path": str(lab / "secret.npy")},
        "sweep": {
            "channel": [*channels, {"name": "trace", "path": str(lab / "third.npy")}, "rayleigh"],
            "power.name": ["gbma", "own_power:Half"],
        },
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(lab)
        otafl.run(scenario, out=lab / "small.nc")
    yield lab
    for module in ("own_power", "halves"):
        sys.modules.pop(module)


def archive(lab: Path, monkeypatch: pytest.MonkeyPatch, out: Path) -> tuple[list[str], Path]:
    """What the archive lacks, and its unpacked folder; it is made where the modules are."""
    monkeypatch.chdir(lab)
    lacking = write_archive(lab / "small.nc", out / "lab.zip", ["A"], "CC0-1.0")
    zipfile.ZipFile(out / "lab.zip").extractall(out / "unpacked")
    return lacking, out / "unpacked"


def test_named_files_and_modules_run_again_elsewhere(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an edit of a comment; a file that no point reads is not in it."""
    copy = Path(shutil.copytree(lab, tmp_path / "lab"))
    (copy / "own_power.py").write_text(POLICY.format(remark="after"))
    lacking, home = archive(copy, monkeypatch, tmp_path)
    assert lacking == []
    inputs = {str(path.relative_to(home)): path for path in home.glob("inputs/*/*")}
    assert sorted(path.name for path in inputs.values()) == ["a trace.npy"] * 2 + ["third.npy"]
    read = {path.read_bytes() for path in inputs.values()}
    assert read == {path.read_bytes() for path in [*lab.glob("*/*.npy"), lab / "third.npy"]}
    crate = json.loads((home / "ro-crate-metadata.json").read_text())
    entities = {one["@id"]: one for one in crate["@graph"]}
    for name in (*inputs, "own_power.py", "halves.py"):
        assert (home / name).is_file()
        assert entities[name.replace(" ", "%20")]["name"] == name
    again = otafl.load_scenario(home / "scenario.yaml")
    swept = [one["path"] for one in again.sweep["channel"] if isinstance(one, dict)]
    assert sorted(swept) == sorted(str(path) for path in inputs.values())
    before = otafl.open_results(lab / "small.nc").test_loss.values
    assert len(np.unique(before[..., -1])) == 8
    assert np.array_equal(otafl.run(again).test_loss.values, before)


def test_a_missing_and_a_changed_input_are_reported_and_left_out(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files with one name, the one that is as it was is in it."""
    for path in (lab / "far" / "a trace.npy", lab / "halves.py"):
        path.rename(tmp_path / path.name)
    kept = {path: path.read_bytes() for path in (lab / "third.npy", lab / "own_power.py")}
    for path, content in kept.items():
        path.write_bytes(content + b"x = 1")
    lacking, home = archive(lab, monkeypatch, tmp_path)
    for path, content in kept.items():
        path.write_bytes(content)
    (tmp_path / "a trace.npy").rename(lab / "far" / "a trace.npy")
    (tmp_path / "halves.py").rename(lab / "halves.py")
    faults = {line.partition(": ")[0]: line.partition(": ")[2].split(",")[0] for line in lacking}
    assert faults == {
        str(lab / "far" / "a trace.npy"): "is missing",
        "halves.py": "is missing",
        str(lab / "third.npy"): "has changed since the run",
        "own_power.py": "has changed since the run",
    }
    (there,) = home.glob("inputs/*/*")
    assert there.read_bytes() == (lab / "near" / "a trace.npy").read_bytes()
    assert not list(home.glob("*.py"))
    assert all(line in (home / "environment.txt").read_text() for line in lacking)


def test_an_archive_reads_no_module_outside_of_the_folders_of_python(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed result could name any file, with its hash."""
    result = otafl.open_results(lab / "small.nc").load()
    (lab / "sub").mkdir()
    made = json.loads(result.attrs["origins"])
    for one in made:
        one["sources"] = {
            name: hash_code(lab / "halves.py")
            for name in ("../halves.py", str(lab / "halves.py"), "own/*.py", "__main__:f")
        }
    result.attrs["origins"] = json.dumps(made)
    result.to_netcdf(lab / "sub" / "small.nc", engine="h5netcdf")
    lacking, _ = archive(lab / "sub", monkeypatch, tmp_path)
    assert len(lacking) == 4
    assert not list(tmp_path.rglob("*.py"))


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
