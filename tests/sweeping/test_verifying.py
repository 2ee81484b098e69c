"""`otafl verify` looks at every file that a run has written, and says what to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from contract.small import scenario
from contract.test_sweeps import Kill, same

from otafl import sweeping
from otafl.cli import main
from otafl.core.errors import UserError
from otafl.results import packing
from otafl.results.files import read_part, write_part
from otafl.sweeping.verifying import advise, verify

pytestmark = pytest.mark.exact

KEYS = {"training.rounds": 3, "trials": 1, "output.save_models": True}
AXIS = {"sweep": {"training.batch_size": [2, 3]}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's result with its models, a finished sweep, and one that was stopped."""
    home = tmp_path_factory.mktemp("made")
    one = scenario({**KEYS, **AXIS})
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
    """The names of the files, and what is wrong with them."""
    return {one.path.name: one.fault for one in verify(source)}


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_all_files_are_looked_at(made: Path) -> None:
    assert faults(made / "run.nc") == dict.fromkeys(["run.nc", "00000.pt", "00001.pt"], "")
    whole = ["plan.json", "scenario.yaml", "00000.nc", "00001.nc", "00000.pt", "00001.pt"]
    assert faults(made / "whole") == dict.fromkeys(whole, "")
    stopped = ["plan.json", "scenario.yaml", "00000.nc", "interrupted.nc", "00000.pt"]
    assert faults(made / "stopped") == dict.fromkeys([*stopped, "00001-0-0-1.checkpoint.pt"], "")
    assert faults(made / "run.models") == dict.fromkeys(["00000.pt", "00001.pt"], "")


def test_every_damaged_file_is_named(copy: Path) -> None:
    for name in faults(copy / "stopped"):
        (path,) = (copy / "stopped").rglob(name)
        kept = path.read_bytes()
        damage(path)
        found = faults(copy / "stopped")
        assert [one for one in found if found[one]] == [name]
        path.write_bytes(kept)
    damage(copy / "run.models" / "00001.pt")
    assert faults(copy / "run.nc")["00001.pt"].startswith("damaged: its SHA-256")


@pytest.mark.slow
def test_what_it_says_to_do_mends_a_sweep(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts are set aside, models deleted by hand; then the same command computes anew, to the same
    numbers, and everything is sound."""
    folder = copy / "whole"
    whole = sweeping.sweep(scenario({**KEYS, **AXIS}), folder).load()
    damage(folder / "parts" / "00000.nc")
    damage(folder / "models" / "00001.pt")
    with pytest.raises(SystemExit) as end:
        main(["verify", str(folder)])
    assert end.value.code == 2
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[2] == "parts/00000.nc: damaged: its SHA-256 is not the one that it was written with"
    )
    assert lines[3] == "parts/00001.nc: sound"
    assert lines[-1] == (
        f"{folder}: 2 of 6 files damaged or missing; delete models/00001.pt; then the command that "
        "wrote it computes again what is damaged or missing"
    )
    (folder / "models" / "00001.pt").unlink()
    assert faults(folder)["00001.pt"] == "missing: the models of a finished stack"
    told: list[str] = []
    calls: list[int] = []
    again = sweeping.sweep(
        scenario({**KEYS, **AXIS}), folder, lambda d, t, n: calls.append(d), tell=told.append
    )
    assert calls == [1, 2, 3, 4, 5, 6]
    assert "00000.nc: is damaged" in told[0]
    assert told[1].endswith("the models of 1 finished stack are not there; it is computed again")
    same(again, whole)
    with pytest.raises(SystemExit) as end:
        main(["verify", str(folder)])
    assert end.value.code in (0, None)
    assert capsys.readouterr().out.endswith(f"{folder}: sound, 6 files\n")


@pytest.mark.slow
def test_a_damaged_pack_does_not_stand_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stacks are computed again, and the folder opens."""
    monkeypatch.setattr(packing, "AT_ONCE", 2)
    one = scenario({"training.rounds": 1, "trials": 1, **AXIS})
    whole = sweeping.sweep(one, tmp_path).load()
    (path,) = tmp_path.glob("packs/*.nc")
    damage(path)
    told: list[str] = []
    same(sweeping.sweep(one, tmp_path, tell=told.append), whole)
    assert "its stacks are computed again" in told[0]
    assert path.with_name(f"{path.name}.damaged").exists()
    assert not any(faults(tmp_path).values())
    sweeping.sweep(one, tmp_path, restart=True, tell=told.append)
    assert not list(tmp_path.rglob("*.damaged"))


@pytest.mark.parametrize("text", ["{", '[{"points": "a", "versions": {}, "sources": {}}]'])
def test_a_damaged_attribute_of_one_part_does_not_stop_a_sweep(text: str, copy: Path) -> None:
    """Whoever wrote it so: the part is computed again, the other one stays."""
    folder = copy / "whole"
    path = folder / "parts" / "00001.nc"
    write_part(read_part(path).assign_attrs(origins=text), path)
    assert re.match("damaged: .*attribute origins", faults(folder)["00001.nc"])
    calls: list[int] = []
    told: list[str] = []
    one = scenario({**KEYS, **AXIS})
    result = sweeping.sweep(one, folder, lambda d, t, n: calls.append(d), tell=told.append)
    assert calls == [4, 5, 6]
    assert result.attrs["complete"] == 1


def test_the_plan_and_the_run_have_their_own_advice(copy: Path) -> None:
    path = copy / "whole" / "plan.json"
    path.write_text(path.read_text().replace('"points": [1]', '"points": [0]'))
    told = advise(list(verify(copy / "whole")), copy / "whole")
    assert told.endswith("the command that wrote it, with --restart, computes everything again")
    damage(copy / "run.nc")
    told = advise(list(verify(copy / "run.nc")), copy / "run.nc")
    assert told.endswith(
        "1 of 3 files damaged or missing; the command that wrote it computes it again"
    )
    shutil.rmtree(copy / "run.models")
    shutil.copy(copy.parent / "copy" / "whole" / "parts" / "00000.nc", copy / "run.nc")
    assert faults(copy / "run.nc")["run.models"] == "missing: the models of this result"


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
        with pytest.raises(SystemExit) as end:
            main(["verify", str(tmp_path / name)])
        assert end.value.code == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert said.err.startswith(f"otafl: error: {tmp_path / name}: ")


def test_nothing_is_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "was_run"),)

    torch.save({"otafl_models": 1, "rows": Bomb()}, tmp_path / "00000.pt")
    assert faults(tmp_path)["00000.pt"] == "damaged: it holds nothing of otafl that can be read"
    assert faults(tmp_path / "00000.pt")["00000.pt"].startswith("damaged")
    assert not (tmp_path / "was_run").exists()
    with pytest.raises(UserError, match="no such file"):
        list(verify(tmp_path / "other"))
