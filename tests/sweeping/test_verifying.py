"""`otafl verify` looks at every file that a run has written, and says what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from contract.small import scenario
from support.command import call
from support.stopped_sweeps import Kill, same

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results.files import read_part, write_part
from otafl.sweeping.verifying import NO_CHECKSUM, verify

pytestmark = pytest.mark.exact

SWEEP = {
    "training.rounds": 3,
    "trials": 1,
    "output.save_models": True,
    "sweep": {"training.batch_size": [2, 3]},
}
CHANGED = "damaged: its SHA-256 is not the one that it was written with"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's result with its models, a finished sweep, and one that was stopped."""
    home = tmp_path_factory.mktemp("made")
    one = scenario(SWEEP)
    sweeping.run(one, home / "run.nc")
    sweeping.sweep(one, home / "whole")
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, home / "stopped", Kill(after=5), checkpoint_every=1)
    return home


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def faults(source: Path) -> dict[str, str]:
    """The files, and what is wrong with them."""
    folder = source if source.is_dir() else source.parent
    return {one.path.relative_to(folder).as_posix(): one.fault for one in verify(source)}


def name_stacks(folder: Path) -> list[str]:
    """The names of finished stacks."""
    return sorted(path.stem for path in folder.glob("parts/*.nc"))


def damage(path: Path, place: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 4
    path.write_bytes(data)


def test_all_files_are_looked_at(made: Path) -> None:
    whole, (first,) = name_stacks(made / "whole"), name_stacks(made / "stopped")
    (second,) = set(whole) - {first}
    models = [f"models/{name}.pt" for name in whole]
    parts = [f"parts/{name}.nc" for name in whole]
    stopped = [f"parts/{first}.nc", f"models/{first}.pt", f"running/{second}.pt"]
    of_run = ["run.nc", *(f"run.{name}" for name in models)]
    assert faults(made / "whole") == dict.fromkeys(["sweep.json", *parts, *models], "")
    assert faults(made / "stopped") == dict.fromkeys(["sweep.json", *stopped], "")
    assert faults(made / "run.nc") == dict.fromkeys(of_run, "")
    assert faults(made / "run.models") == dict.fromkeys([f"{name}.pt" for name in whole], "")


@pytest.mark.parametrize("source", ["stopped", "run.nc"])
def test_every_damaged_file_is_named(source: str, copy: Path) -> None:
    folder = copy / source if source == "stopped" else copy
    for name in faults(copy / source):
        kept = (folder / name).read_bytes()
        damage(folder / name)
        found = faults(copy / source)
        assert {one: fault for one, fault in found.items() if fault} == {name: CHANGED}
        (folder / name).write_bytes(kept)


def test_a_file_without_a_checksum_is_read_to_its_end(copy: Path) -> None:
    """HDF5 has checksums of its chunks."""
    path = copy / "run.nc"
    (copy / "run.nc.sha256").unlink()
    found = next(verify(path))
    assert (found.fault, found.note) == ("", NO_CHECKSUM)
    with h5py.File(path) as file:
        place = file["test_accuracy"].id.get_chunk_info(0).byte_offset
    damage(path, place)
    assert next(verify(path)).fault == "damaged: NetCDF: HDF error"


@pytest.mark.slow
def test_what_it_says_to_do_mends_a_sweep(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts are set aside, models deleted by hand; then the same command computes anew, to the same
    numbers, and everything is sound."""
    folder = copy / "whole"
    whole = sweeping.sweep(scenario(SWEEP), folder).load()
    first, second = name_stacks(folder)
    damage(folder / "parts" / f"{first}.nc")
    damage(folder / "models" / f"{second}.pt")
    call("verify", folder, code=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [f"parts/{first}.nc: {CHANGED}", f"parts/{second}.nc: sound"]
    assert lines[-1] == (
        f"{folder}: 2 of 5 files damaged or missing; delete models/{second}.pt; then the command "
        "that wrote it computes again what is damaged or missing"
    )
    (folder / "models" / f"{second}.pt").unlink()
    told: list[str] = []
    same(sweeping.sweep(scenario(SWEEP), folder, tell=told.append), whole)
    assert f"{first}.nc: is damaged" in told[0]
    assert told[1].endswith(f"{second}.nc: its models are not there; it is computed again")
    call("verify", folder)
    assert capsys.readouterr().out.endswith(f"{folder}: sound, 5 files\n")


def test_a_damaged_attribute_of_one_part_does_not_stop_a_sweep(copy: Path) -> None:
    """Whoever wrote it so: the part is computed again, the other one stays."""
    folder = copy / "whole"
    stack = name_stacks(folder)[0]
    path = folder / "parts" / f"{stack}.nc"
    write_part(read_part(path).assign_attrs(origins="{"), path)
    assert faults(folder)[f"parts/{stack}.nc"].startswith("damaged: ")
    rounds: list[int] = []
    told: list[str] = []
    sweeping.sweep(scenario(SWEEP), folder, lambda d, t, n: rounds.append(d), tell=told.append)
    assert rounds == [4, 5, 6]
    assert len(told) == 1
    assert not any(faults(folder).values())


@pytest.mark.parametrize("is_damaged", [True, False])
def test_without_its_file_a_sweep_keeps_its_parts(is_damaged: bool, copy: Path) -> None:
    folder = copy / "whole"
    path = folder / "sweep.json"
    if is_damaged:
        damage(path)
        with pytest.raises(UserError, match="delete this file, and the same command keeps all"):
            open_results(folder)
    path.unlink()
    (folder / "sweep.json.sha256").unlink()
    found = faults(folder)
    assert {name: fault for name, fault in found.items() if fault} == {"sweep.json": "is missing"}
    with pytest.raises(UserError, match="is missing; the same command writes it again and keeps"):
        open_results(folder)
    rounds: list[int] = []
    sweeping.sweep(scenario(SWEEP), folder, lambda d, t, n: rounds.append(d))
    assert rounds == []
    assert not any(faults(folder).values())


def test_what_is_no_file_of_otafl_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    torch.save({"mine": torch.zeros(3)}, tmp_path / "mine.pt")
    with h5py.File(tmp_path / "mine.nc", "w") as file:
        file["x"] = np.zeros(3)
    os.mkfifo(tmp_path / "fifo")
    for name in ("notes.txt", "empty", "mine.pt", "mine.nc", "fifo", "nothing"):
        call("verify", tmp_path / name, code=2)
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert said.err.startswith(f"otafl: error: {tmp_path / name}: ")
    with pytest.raises(UserError, match="no such file"):
        list(verify(tmp_path / "other"))
