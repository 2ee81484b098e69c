"""A file that is there before a run: whether it stays, is computed again, or is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from contract.small import scenario
from support.stopped_sweeps import same

from otafl import data, sweeping
from otafl.core.errors import UserError
from otafl.results.files import read_part, write_part
from otafl.results.origins import get_versions
from otafl.scenario import Scenario
from otafl.sweeping import earlier
from otafl.sweeping.stack_job import hash_inputs

pytestmark = pytest.mark.exact

AXES = {"channel.snr_db": [0, 20], "csi.name": ["perfect", "error"]}


def small(sweep: dict[str, Any], trials: int = 2, **keys: Any) -> Scenario:
    return scenario(
        {"training.rounds": 2, "devices.count": 3, "trials": trials, "sweep": sweep, **keys}
    )


class Calls:
    """The rounds that are computed, as a progress, and what is told."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.told: list[str] = []

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self.rounds.append(done)

    def run(self, one: Scenario, out: Path, **keys: Any) -> xr.Dataset:
        return sweeping.run(one, out, self, tell=self.told.append, **keys)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished file, to copy."""
    out = tmp_path_factory.mktemp("file") / "r.nc"
    sweeping.run(small(AXES), out)
    return out


@pytest.fixture
def out(file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(file, tmp_path))


@pytest.mark.slow
def test_a_finished_file_stays(tmp_path: Path) -> None:
    """Links, timelines, followed runs and ragged device counts too."""
    keys = {"output.save_link": True, "output.save_timeline": True, "track": "jsonl"}
    one, out = small({"devices.count": [2, 4]}, **keys), tmp_path / "r.nc"
    before, calls = sweeping.run(one, out).load(), Calls()
    lines = [path.read_text() for path in sorted(tmp_path.glob("r.track/**/*.jsonl"))]
    same(calls.run(one, out).load(), before)
    assert calls.rounds == []
    assert calls.told == [f"{out}: is finished and stays; without this file it is computed again"]
    assert len(lines) == 4
    assert [path.read_text() for path in sorted(tmp_path.glob("r.track/**/*.jsonl"))] == lines
    out.unlink()
    after = calls.run(one, out)
    assert calls.rounds == [1, 2, 3, 4]
    assert float(after["wall_time_s"].sum()) != float(before["wall_time_s"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["torch", "data"])
def test_a_file_that_was_made_otherwise_is_computed_anew(
    what: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, part = Calls(), read_part(out)
    if what == "torch":
        made = part.attrs["origins"].replace(get_versions()["torch"], "2.0.1")
        write_part(part.assign_attrs(origins=made), out)
    if what == "data":
        monkeypatch.setattr(data, "compute_fingerprint", lambda source: "0123456789abcdef")
    after = calls.run(small(AXES), out)
    assert calls.told == [f"{out}: is computed again, since it was made with other {what}"]
    assert len(calls.rounds) == 4
    same(after, sweeping.run(small(AXES)))


def test_every_point_of_a_file_is_compared(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the data differ of the last point alone."""

    def hash_now(one: Scenario) -> dict[str, str]:
        is_last = one.channel.snr_db == 20 and one.csi.name == "error"
        return hash_inputs(one) | ({"data": "0123456789abcdef"} if is_last else {})

    told: list[str] = []
    assert earlier.is_finished(out, small(AXES), told.append)
    monkeypatch.setattr(earlier, "hash_inputs", hash_now)
    assert not earlier.is_finished(out, small(AXES), told.append)
    assert told[1:] == [f"{out}: is computed again, since it was made with other data"]


SNRS = {"channel.snr_db": [0], "csi.name": ["perfect", "error"]}


@pytest.mark.parametrize(
    ("now", "differ"),
    [
        (small(AXES, seed=8), "seed"),
        (
            small(SNRS, 1, seed=8, model="mlp", server="adam", **{"data.test": "per_device"}),
            "data.test, model.hidden, server.name, trials and 2 more",
        ),
    ],
)
def test_a_file_of_another_scenario_is_refused(now: Scenario, differ: str, out: Path) -> None:
    """The sentence says what is there, what differs and what to do; the file keeps its bytes."""
    before, calls = out.read_bytes(), Calls()
    with pytest.raises(UserError) as refused:
        calls.run(now, out)
    assert str(refused.value) == (
        f"{out}: holds the result of another scenario, 'small', which differs in {differ}; "
        "give another file with --out, or delete this one"
    )
    assert (out.read_bytes(), calls.rounds, calls.told) == (before, [], [])
    assert [path.name for path in out.parent.iterdir()] == ["r.nc"]


@pytest.mark.slow
def test_the_file_that_a_changed_scenario_is_named_after_is_replaced(tmp_path: Path) -> None:
    """And that is said; the same file is refused to a scenario of another name."""
    keys: dict[str, Any] = {"output.folder": str(tmp_path)}
    calls, own = Calls(), sweeping.name_own_file(small({}, **keys))
    calls.run(small({}, **keys), own)
    assert calls.run(small({}, seed=8, **keys), own).attrs["seed"] == 8
    assert calls.told == [f"{own}: is computed again, since it was made with other seed"]
    other = small({}, name="other", seed=9, **keys)
    own.rename(sweeping.name_own_file(other))
    with pytest.raises(UserError, match="another scenario, 'small', which differs in seed"):
        calls.run(other, sweeping.name_own_file(other))


@pytest.mark.parametrize("text", [b"", b"\x89HDF\r\n\x1a\n"])
def test_a_file_without_a_result_is_replaced(text: bytes, tmp_path: Path) -> None:
    """Without a word: it is empty, or broken off."""
    out, calls = tmp_path / "r.nc", Calls()
    out.write_bytes(text)
    assert calls.run(small({}), out).attrs["complete"] == 1
    assert calls.told == []


def test_what_another_program_wrote_is_refused(tmp_path: Path) -> None:
    text, netcdf = tmp_path / "r.nc", tmp_path / "weather.nc"
    text.write_text("name: small")
    xr.Dataset({"wind": ("hour", [1.0])}).to_netcdf(netcdf)
    for path in (text, netcdf):
        before = path.read_bytes()
        with pytest.raises(UserError) as refused:
            sweeping.run(small({}), path)
        assert str(refused.value) == (
            f"{path}: is there already, and no result that can be read; give another file with "
            "--out, or delete this one"
        )
        assert path.read_bytes() == before


def test_a_file_of_the_user_s_among_models_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "r.models").mkdir()
    (tmp_path / "r.models" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"r\.models/notes\.txt: is no file of otafl"):
        sweeping.run(scenario({"output.save_models": True}), tmp_path / "r.nc")
    sweeping.run(small({}), tmp_path / "r.nc")
    assert (tmp_path / "r.models" / "notes.txt").read_text() == "mine"


def test_a_run_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweeping.run(small({"training.batch_size": [2, 3]}))
    assert list(tmp_path.iterdir()) == []
