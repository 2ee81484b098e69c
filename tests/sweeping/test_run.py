"""A run into one file, interrupted while it puts the finished stacks together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from contract.small import scenario
from contract.test_sweeps import same

from otafl import open_results, sweeping
from otafl.results import models as trained

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    "place",
    [
        "removing",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("writing", "half removed")),
    ],
)
def test_an_interrupted_end_loses_no_models(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call makes the result, with the models of all stacks."""
    one = scenario(
        {
            "training.rounds": 2,
            "trials": 1,
            "output.save_models": True,
            "sweep": {"training.batch_size": [2, 3]},
        }
    )
    whole = sweeping.run(one, tmp_path / "whole.nc")
    out, remove = tmp_path / "out.nc", shutil.rmtree

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def removing(path: Path, *rest: Any, **options: Any) -> None:
        if any(path.glob("parts/*")):
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
    assert len(names) == 2
    assert {path.name for path in tmp_path.iterdir()} >= {"out.nc", trained.folder_of(out).name}
    assert not sweeping.unfinished(out).exists()
    assert not list(tmp_path.glob(".*"))
