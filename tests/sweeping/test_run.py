"""A run into one file: what is written, and interruptions while it puts the finished stacks
together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from contract.small import scenario
from contract.test_sweeps import same

from otafl import open_results, sweeping
from otafl.results import models as trained
from otafl.sweeping import working

pytestmark = pytest.mark.exact

TWO = {"training.batch_size": [2, 3]}
"""A sweep of two stacks."""


@pytest.mark.parametrize(("sweep", "files"), [({}, 1), (TWO, 3)])
def test_a_single_stack_is_written_once(
    sweep: dict[str, Any], files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if its part is written too; what is read is what is returned, and has the attributes
    that a folder with a part has."""
    written: list[Path] = []
    true = working.write_part

    def counted(dataset: Any, path: Path) -> None:
        written.append(path)
        true(dataset, path)

    for module in (working, sweeping):
        monkeypatch.setattr(module, "write_part", counted)
    one, out = scenario({"training.rounds": 2, "sweep": sweep}), tmp_path / "out.nc"
    result = sweeping.run(one, out)
    assert len(written) == files
    assert written[-1] == out
    for other in (open_results(out), sweeping.run(one)):
        same(result, other)
    folder = sweeping.sweep(one, tmp_path / "folder")
    same(result, folder)
    assert result.attrs.keys() == folder.attrs.keys()
    assert [path.name for path in tmp_path.iterdir() if path.name != "folder"] == ["out.nc"]


def test_a_part_is_taken_up_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    """That an earlier call has left beside the file; how often its rounds are computed."""
    one, out = scenario({"training.rounds": 2}), tmp_path / "out.nc"
    whole = sweeping.sweep(one, tmp_path / "folder").load()
    for damage, computed in ((None, 0), (b"text", 2)):
        shutil.copytree(tmp_path / "folder", sweeping.unfinished(out))
        (part,) = sweeping.unfinished(out).glob("parts/*")
        if damage is not None:
            part.write_bytes(damage)
        calls: list[int] = []
        same(sweeping.run(one, out, lambda done, *_, calls=calls: calls.append(done)), whole)
        assert len(calls) == computed
        same(open_results(out), whole)
        assert not sweeping.unfinished(out).exists()


@pytest.mark.parametrize(
    ("place", "sweep"),
    [
        ("removing", TWO),
        ("removing", {}),
        *(pytest.param(one, TWO, marks=pytest.mark.slow) for one in ("writing", "half removed")),
    ],
)
def test_an_interrupted_end_loses_no_models(
    place: str, sweep: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call makes the result, with the models of all stacks."""
    keys = {"training.rounds": 2, "trials": 1, "output.save_models": True}
    one = scenario({**keys, "sweep": sweep})
    whole = sweeping.run(one, tmp_path / "whole.nc")
    out, remove = tmp_path / "out.nc", shutil.rmtree

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def removing(path: Path, *rest: Any, **options: Any) -> None:
        if path.name == ".out.unfinished.removed" and path.exists():
            if place == "half removed":
                next(path.glob("parts/*")).unlink()
            raise KeyboardInterrupt
        remove(path, *rest, **options)

    if place == "writing":
        monkeypatch.setattr(sweeping, "write_part", interrupted)
    else:
        monkeypatch.setattr(shutil, "rmtree", removing)
    with pytest.raises(KeyboardInterrupt):
        sweeping.run(one, out)
    monkeypatch.undo()
    same(sweeping.run(one, out), whole)
    same(open_results(out), whole)
    names = [path.name for path in trained.folder_of(tmp_path / "whole.nc").iterdir()]
    assert sorted(path.name for path in trained.folder_of(out).iterdir()) == sorted(names)
    assert len(names) == (2 if sweep else 1)
    assert {path.name for path in tmp_path.iterdir()} >= {"out.nc", trained.folder_of(out).name}
    assert not sweeping.unfinished(out).exists()
    assert not list(tmp_path.glob(".*"))
