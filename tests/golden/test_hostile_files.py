"""Files that someone else may have written are data: nothing in them is run, whoever reads them."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
import yaml
from contract.small import scenario
from support.command import call
from support.marks import first_is_fast
from support.stopped_sweeps import Kill, same
from support.trained_bench import make_trained_result

import otafl
from otafl import sweeping
from otafl.cli import main
from otafl.clock.event_clock import EventClock
from otafl.core.errors import UserError
from otafl.data import loading as data_loading
from otafl.results import models as trained
from otafl.results.files import write_part
from otafl.sweeping.verifying import verify


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """The place that must stay empty."""
    place = tmp_path / "was_run"
    yield place
    assert not place.exists()


def as_pickle(path: Path, mark: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(mark)))


def as_torch(path: Path, mark: Path) -> None:
    torch.save(Bomb(mark), path)


def inside_a_checkpoint(path: Path, mark: Path) -> None:
    torch.save(torch.load(path, weights_only=True) | {"journal": Bomb(mark)}, path)


Way = Callable[[Path, Path], None]


@pytest.mark.parametrize("way", first_is_fast([as_pickle, inside_a_checkpoint]))
def test_a_checkpoint_is_not_run(way: Way, tmp_path: Path, mark: Path) -> None:
    one, folder = scenario({"trials": 1}), tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, folder, Kill(after=2), checkpoint_every=1)
    (file,) = (folder / "running").glob("*.pt")
    way(file, mark)
    file.with_name(f"{file.name}.sha256").unlink()
    said: list[str] = []
    again = sweeping.sweep(one, folder, checkpoint_every=1, tell=said.append)
    assert len(said) == 1
    assert "computed again" in said[0]
    same(again, sweeping.run(one))


def test_a_journal_names_methods_of_a_clock_alone() -> None:
    clock = EventClock.__new__(EventClock)
    with pytest.raises(ValueError, match="__init__"):
        clock.load_state_dict({"journal": [("__init__", None, None, None)]})


def test_no_file_of_a_folder_is_run(tmp_path: Path, mark: Path) -> None:
    """The fixture `mark` sees that none is."""
    one = scenario({"trials": 1, "training.rounds": 1, "output.save_models": True})
    uses: list[Callable[[Path], object]] = [
        otafl.open_results,
        lambda place: list(verify(place)),
        lambda place: sweeping.sweep(one, place),
    ]
    for name in ("parts", "sweep.json", "sizes.json", "models"):
        folder = tmp_path / f"with {name}"
        sweeping.sweep(one, folder)
        for checksum in folder.rglob("*.sha256"):
            checksum.unlink()
        place = folder / name
        as_pickle(next(place.iterdir()) if place.is_dir() else place, mark)
        for use in uses:
            with contextlib.suppress(UserError):
                use(folder)


@pytest.mark.parametrize("way", [as_pickle, as_torch])
def test_models_are_not_run(way: Way, tmp_path: Path, mark: Path) -> None:
    path = make_trained_result(tmp_path)
    (file,) = trained.list_model_files(path)
    way(file, mark)
    file.with_name(f"{file.name}.sha256").unlink()
    assert next(verify(file)).fault.startswith("damaged: ")
    with pytest.raises(UserError, match="is damaged or holds no models"):
        otafl.load_model(path)


def named(tmp_path: Path, code: str, **options: Any) -> Path:
    """A result whose model is what a stranger's code makes, as its scenario says."""
    path = make_trained_result(tmp_path)
    with xr.open_dataset(path) as held:
        whole = held.load()
    tree = yaml.safe_load(whole.attrs["scenario"]) | {"model": {"name": code, **options}}
    whole.attrs["scenario"] = yaml.safe_dump(tree)
    write_part(whole, path)
    return path


def test_a_model_s_code_is_not_run(tmp_path: Path, mark: Path) -> None:
    """What Python itself has not even if it is trusted."""
    path = named(tmp_path, "os:mkdir", path=str(mark))
    with pytest.raises(UserError, match=r"names 'os:mkdir'.* trust=True"):
        otafl.load_model(path)
    with pytest.raises(UserError, match="part of Python itself"):
        otafl.load_model(path, trust=True)
    for check in ("--check", "--no-check"):
        out = str(tmp_path / "model.pt2")
        call("export", path, "--to", "pytorch", "--out", out, check, code=2)


def test_a_result_s_data_set_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`export` tests a model on the samples that the result's scenario names."""
    (tmp_path / "mine_to_run.py").write_text(
        "import os\n"
        "from otafl.data import DataSet, load_cached\n"
        "from otafl.data.digits import Digits\n"
        "def data():\n"
        "    os.environ['OTAFL_TEST_WAS_RUN'] = '1'\n"
        "    return load_cached(Digits(train_samples=300))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = make_trained_result(tmp_path, data="mine_to_run:data")
    monkeypatch.delenv("OTAFL_TEST_WAS_RUN")
    data_loading._load_from_cache.cache_clear()  # as in a program that has not run it itself
    command = ["export", path, "--to", "pytorch", "--out", tmp_path / "model.pt2"]
    call(*command, code=2)
    assert "OTAFL_TEST_WAS_RUN" not in os.environ
    call(*command, "--trust")
    assert os.environ.pop("OTAFL_TEST_WAS_RUN") == "1"


NAMED = ("algorithm", "channel", "power", "codec", "csi", "server", "downlink", "model", "data")

READERS = {
    "show": ["show", "R", "--full"],
    "plot": ["plot", "R", "--out", "OUT.png"],
    "cdf": ["plot", "R", "--kind", "cdf", "--out", "OUT.png"],
    "report": ["report", "R", "--out", "OUT.html"],
    "diff": ["diff", "R", "R"],
    "convert": ["convert", "R", "OUT.nc"],
    "convert to a table": ["convert", "R", "OUT.csv"],
    "export": ["export", "R", "--to", "pytorch", "--out", "OUT.pt2", "--check"],
}


@pytest.mark.slow
def test_no_command_imports_what_a_result_s_scenario_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: Path
) -> None:
    """A result with models whose scenario names a stranger's module throughout, beside that module,
    whose import the fixture `mark` would see. Readers work on a scenario that is no more than a
    text, and export says that it would need its code."""
    path = make_trained_result(tmp_path)
    (tmp_path / "strangers.py").write_text(f"import os; os.mkdir({str(mark)!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    dataset = otafl.open_results(path).load()
    tree = yaml.safe_load(dataset.attrs["scenario"])
    for section in NAMED:
        tree[section] = {"name": "strangers:Part", "a": 1}
    tree["track"] = {"name": "strangers:track"}
    tree["data"]["partition"] = {"name": "strangers:deal"}
    tree["devices"]["selection"] = {"name": "strangers:Choice"}
    text = yaml.safe_dump(tree)
    dataset.attrs["scenario"] = text
    dataset.close()
    write_part(dataset, path)
    wrong = {}
    for reader, words in READERS.items():
        with pytest.raises(SystemExit) as end:
            main([str(path) if word == "R" else word.replace("OUT", "out") for word in words])
        if end.value.code not in ((0, None, 1, 2) if reader == "export" else (0, None)):
            wrong[reader] = end.value.code
    assert wrong == {}
