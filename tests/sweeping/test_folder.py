"""What a sweep's folder holds, whose it is, and how it is emptied."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.small import scenario
from contract.test_sweeps import Kill
from support.marks import first_is_fast

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.scenario import compute_scenario_hash
from otafl.sweeping import locks, plan_file, stack_job
from otafl.sweeping.folder import Folder

pytestmark = pytest.mark.exact

SWEEP = {"sweep": {"power": ["gbma", "ci"]}, "training.rounds": 2}


def silent(text: str) -> None:
    pytest.fail(f"told: {text}")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Every stack fails, until the result is called."""

    def fails(*_: Any, **__: Any) -> None:
        raise UserError("the user can mend this")

    true = stack_job.run_stack
    monkeypatch.setattr(stack_job, "run_stack", fails)
    return lambda: monkeypatch.setattr(stack_job, "run_stack", true)


@pytest.mark.slow
@pytest.mark.parametrize("run", first_is_fast([True, False]))
def test_a_folder_without_results_is_nobodys(
    tmp_path: Path, failing: Callable[[], None], run: bool
) -> None:
    made = sweeping.run if run else sweeping.sweep
    with pytest.raises(UserError, match="the user can mend this"):
        made(scenario(SWEEP), tmp_path / "r.nc")
    failing()
    corrected = scenario({**SWEEP, "seed": 8})
    assert made(corrected, tmp_path / "r.nc", tell=silent).attrs["seed"] == 8
    assert (tmp_path / "r.nc").is_file() == run
    assert not (tmp_path / "r.unfinished").exists()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep, to copy."""
    folder = tmp_path_factory.mktemp("kept") / "s"
    sweeping.sweep(scenario(SWEEP), folder, tell=silent)
    return folder


@pytest.mark.slow
def test_results_of_another_scenario_are_kept_until_restart(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "r")
    parts = [path.read_bytes() for path in sorted((tmp_path / "r" / "parts").glob("*.nc"))]
    other = scenario({**SWEEP, "name": "other", "seed": 8})
    with pytest.raises(
        UserError,
        match=r"r: holds 2 finished parts of the scenario 'small', not of this .* "
        "throw that away with --restart, or give another place with --out",
    ):
        sweeping.sweep(other, tmp_path / "r")
    assert parts == [path.read_bytes() for path in sorted((tmp_path / "r/parts").glob("*.nc"))]
    told: list[str] = []
    again = sweeping.sweep(other, tmp_path / "r", tell=told.append, restart=True)
    assert again.attrs["title"] == "other"
    assert told == [
        f"{tmp_path / 'r'}: --restart threw away 2 finished parts of the scenario 'small'"
    ]


@pytest.mark.slow
def test_restart_computes_all_anew_and_leaves_what_is_not_a_sweeps(tmp_path: Path) -> None:
    one = scenario({**SWEEP, "output.save_models": True})
    sweeping.sweep(one, tmp_path, tell=silent)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "parts" / "notes.txt").write_text("mine too")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("0*.*")}
    assert {path.suffix for path in before} == {".nc", ".pt"}
    told: list[str] = []
    sweeping.sweep(one, tmp_path, tell=told.append, restart=True)
    assert [path for path in before if path.stat().st_mtime_ns == before[path]] == []
    assert "threw away 2 finished parts" in told[0]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "parts" / "notes.txt").read_text() == "mine too"


def test_restart_of_nothing_and_of_what_is_no_sweep_throws_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.nc").write_text("mine")
    assert Folder(tmp_path).prepare(scenario({}), restart=True) == ""
    assert (tmp_path / "parts" / "mine.nc").read_text() == "mine"


OWN_FOLDERS = (
    *("parts", "packs", "models", "running", "failures", "earlier", "growing", "locks", "track"),
)


@pytest.mark.parametrize("name", OWN_FOLDERS)
def test_a_link_in_place_of_an_own_folder_is_refused(name: str, tmp_path: Path) -> None:
    one = scenario({})
    plan_file.load_or_create(one, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "locks")
    (tmp_path / "victim").mkdir()
    for file in ("00000.nc", "00000.pt", "important.nc"):
        (tmp_path / "victim" / file).write_text("climate")
    (tmp_path / "s" / name).symlink_to("../victim")
    for restart in (False, True):
        with pytest.raises(UserError, match=rf"s/{name}: .*got a link to \.\./victim"):
            sweeping.sweep(one, tmp_path / "s", restart=restart)
    assert len(list((tmp_path / "victim").iterdir())) == 3


def test_a_sweep_s_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "s").symlink_to("disk")
    for restart in (False, True):
        result = sweeping.sweep(scenario({}), tmp_path / "s", restart=restart, tell=print)
        assert result.attrs["complete"] == 1
    assert (tmp_path / "disk" / "parts" / "00000.nc").is_file()


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_not_otafl_s_stays_in_own_folders(restart: bool, tmp_path: Path) -> None:
    """Of a user's `state`, `models` and the like too, at the end of a sweep and with --restart."""
    sweeping.sweep(scenario({}), tmp_path)
    foreign = []
    for name in (*OWN_FOLDERS, "state"):
        (tmp_path / name).mkdir(exist_ok=True)
        foreign += [tmp_path / name / file for file in ("important.nc", "notes.txt", "00000-0")]
    for path in foreign:
        path.write_text("mine")
    result = sweeping.sweep(scenario({}), tmp_path, restart=restart, tell=print)
    assert result.attrs["complete"] == 1
    assert [path for path in foreign if not path.exists() or path.read_text() != "mine"] == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("running/00000-0-0-1.checkpoint.pt", "checkpoints of what was running"),
        ("running/00000-0-0-1.record.pt", "finished batches of what was running"),
        ("interrupted.nc", "the records of an interrupted one"),
    ],
)
def test_work_that_is_not_finished_is_kept_too(tmp_path: Path, file: str, said: str) -> None:
    plan_file.load_or_create(scenario({}), tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    with pytest.raises(UserError, match=f"holds 0 finished parts, {said} of the scenario 'small'"):
        Folder(tmp_path).prepare(scenario({"seed": 8}))
    assert said in Folder(tmp_path).prepare(scenario({"seed": 8}), restart=True)
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("restart", [True, False])
def test_a_folder_that_another_program_computes_in_is_left_alone(
    tmp_path: Path, restart: bool
) -> None:
    plan_file.load_or_create(scenario({}), tmp_path)
    with (
        locks.hold_lock(Folder(tmp_path).get_lock_path(0)),
        pytest.raises(UserError, match="another program computes there; wait for it"),
    ):
        Folder(tmp_path).prepare(scenario({"seed": 8}), restart)
    assert Folder(tmp_path).plan.exists()


def test_a_file_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: small  # with my notes\n")
    with pytest.raises(UserError, match=r"scenario.yaml: is there already, and a sweep keeps its"):
        sweeping.sweep(scenario(SWEEP), tmp_path)
    assert (tmp_path / "scenario.yaml").read_text() == "name: small  # with my notes\n"


def doctored(changes: dict[str, Any]) -> str:
    one = scenario({"trials": 2})
    stack = {"points": [0], "batches": [[[0], [0, 1]]]} | changes
    return json.dumps({"scenario_hash": compute_scenario_hash(one), "stacks": [stack]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "1" * 5000,
        '{"scenario_hash": 1}',
        doctored({"points": []}),
        doctored({"points": [0, 0]}),
        doctored({"points": [1]}),
        doctored({"points": ["a"]}),
        doctored({"points": None}),
        doctored({"batches": []}),
        doctored({"batches": [[[0], [0]]]}),
        doctored({"batches": [[[0], [0, 1]], [[0], [1]]]}),
        doctored({"batches": [[[0], [0, 7]]]}),
        doctored({"batches": [[[1], [0, 1]]]}),
        doctored({"batches": [5]}),
        doctored({"batches": {"a": 1}}),
    ],
)
def test_a_doctored_plan_is_named_where_there_are_results(tmp_path: Path, text: str) -> None:
    """Without any it is nobody's, see above."""
    one = scenario({"trials": 2, "training.rounds": 1})
    plan_file.load_or_create(one, tmp_path)
    if "stacks" in text:
        text = text.replace(
            compute_scenario_hash(scenario({"trials": 2})), compute_scenario_hash(one)
        )
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError, match=r"plan\.json: is damaged or no plan of otafl; begin again"):
        plan_file.load_or_create(one, tmp_path)


def test_a_folder_in_the_place_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(UserError, match=r"plan\.json: is damaged or no plan of otafl; begin again"):
        sweeping.sweep(scenario({}), tmp_path)


SPECIAL = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize(
    "kinds",
    [("pipe", "folder"), pytest.param(("folder", "device"), marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_parts_that_are_no_regular_files_are_set_aside(
    kept: Path, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    shutil.copytree(kept, tmp_path / "s")
    parts = [Folder(tmp_path / "s").get_part_path(number) for number in (0, 1)]
    for part, kind in zip(parts, kinds, strict=True):
        part.unlink()
        SPECIAL[kind](part)
    told = list[str]()
    result = sweeping.sweep(scenario(SWEEP), tmp_path / "s", tell=told.append)
    assert result.attrs["complete"] == 1
    for part in parts:
        assert part.is_file()
        assert not part.is_symlink()
        assert part.with_name(f"{part.name}.damaged").exists()
    assert " ".join(told).count("not a regular file") == 2


@pytest.mark.slow
def test_a_plan_that_is_no_regular_file_is_one_sentence(kept: Path, tmp_path: Path) -> None:
    one, folder = scenario(SWEEP), tmp_path / "s"
    for name in ("plan.json", "scenario.yaml"):
        for kind in ("pipe", "device"):
            shutil.copytree(kept, folder)
            (folder / name).unlink()
            SPECIAL[kind](folder / name)
            with pytest.raises(UserError, match="--restart"):
                sweeping.sweep(one, folder)
            Folder(folder).prepare(one, restart=True)
            assert not (folder / name).is_symlink()
            assert plan_file.load_or_create(one, folder)
            shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["pipe", "link", pytest.param("device", marks=pytest.mark.slow)])
def test_a_checkpoint_that_is_no_regular_file_is_made_anew(tmp_path: Path, kind: str) -> None:
    one, told = scenario({"training.rounds": 6}), list[str]()
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, tmp_path / "s", Kill(after=4), checkpoint_every=1)
    (kept,) = (tmp_path / "s" / "running").glob("*.checkpoint.pt")
    moved = kept.rename(tmp_path / "moved.pt")
    if kind == "link":
        kept.symlink_to(moved)
    else:
        SPECIAL[kind](kept)
    result = sweeping.sweep(one, tmp_path / "s", checkpoint_every=1, tell=told.append)
    assert result.attrs["complete"] == 1
    assert "computed again" in " ".join(told)
