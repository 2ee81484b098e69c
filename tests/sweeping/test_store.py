"""What a sweep's folder holds, whose it is, and how it is emptied."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from contract.small import scenario
from support.stopped_sweeps import Kill, same

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results.files import list_parts
from otafl.sweeping import stack_job

pytestmark = pytest.mark.exact

SWEEP = {"sweep": {"channel.snr_db": [0, 20]}, "training.rounds": 2, "trials": 1}


def silent(text: str) -> None:
    pytest.fail(f"told: {text}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep, to copy."""
    folder = tmp_path_factory.mktemp("finished") / "s"
    sweeping.sweep(scenario(SWEEP), folder, tell=silent)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "s"))


def read_bytes(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "locks" not in path.parts
    }


def test_a_finished_sweep_is_a_file_a_stack(folder: Path) -> None:
    (part,) = list_parts(folder)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        f"parts/{part.name}",
        f"parts/{part.name}.sha256",
        "sweep.json",
        "sweep.json.sha256",
    }


def test_the_same_call_computes_nothing(folder: Path) -> None:
    before, calls = read_bytes(folder), Kill(after=-1)
    result = sweeping.sweep(scenario(SWEEP), folder, calls, tell=silent)
    assert calls.calls == 0
    assert read_bytes(folder) == before
    same(result, sweeping.run(scenario(SWEEP)))


def test_a_folder_without_results_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the user's fault left it: the corrected scenario begins there without a word."""

    def fail(*_: Any, **__: Any) -> None:
        raise UserError("the user can mend this")

    with monkeypatch.context() as patch:
        patch.setattr(stack_job, "run_stack", fail)
        with pytest.raises(UserError, match="the user can mend this"):
            sweeping.run(scenario(SWEEP), tmp_path / "r.nc")
    corrected = scenario({**SWEEP, "seed": 8})
    assert sweeping.run(corrected, tmp_path / "r.nc", tell=silent).attrs["seed"] == 8
    assert not (tmp_path / "r.unfinished").exists()


def test_results_of_another_scenario_are_kept(folder: Path) -> None:
    before = read_bytes(folder)
    other = scenario({**SWEEP, "name": "other", "seed": 8})
    with pytest.raises(
        UserError,
        match=r"s: holds 1 finished part of the scenario 'small', not of this .* "
        "delete this folder, or give another place with --out",
    ):
        sweeping.sweep(other, folder)
    assert read_bytes(folder) == before


FILE = "0123456789abcdef"


@pytest.mark.parametrize("name", ["parts", "locks"])
def test_a_link_in_place_of_an_own_folder_is_refused(name: str, folder: Path) -> None:
    shutil.rmtree(folder / name, ignore_errors=True)
    victim = folder.with_name("victim")
    victim.mkdir()
    for file in (f"{FILE}.nc", f"{FILE}.pt", "important.nc"):
        (victim / file).write_text("climate")
    (folder / name).symlink_to("../victim")
    with pytest.raises(UserError, match=rf"s/{name}: .*got a link to \.\./victim"):
        sweeping.sweep(scenario(SWEEP), folder)
    assert len(list(victim.iterdir())) == 3


@pytest.mark.parametrize("text", ["", "[" * 100_000, None])
def test_a_damaged_file_of_the_sweep_is_named(text: str | None, folder: Path) -> None:
    path = folder / "sweep.json"
    path.with_name("sweep.json.sha256").unlink()
    if text is None:
        text = path.read_text().replace('"trials": 1', '"trials": -1')
    path.write_text(text)
    before = read_bytes(folder)
    for use in (lambda: sweeping.sweep(scenario(SWEEP), folder), lambda: open_results(folder)):
        with pytest.raises(UserError, match=r"sweep\.json: is damaged or no file of a sweep \("):
            use()
    assert read_bytes(folder) == before
