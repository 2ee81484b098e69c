"""Workers of this machine: a worker that dies takes nothing with it, and each has its share of the
processor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from contract.small import scenario

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.sweeping import FailedStacks, workers

pytestmark = pytest.mark.exact

KILLER = """\
import os
from pathlib import Path
import torch

def power(link, size, place):
    deaths = Path(place)
    if size == 2:
        (deaths / str(os.getpid())).touch()
        os.kill(os.getpid(), 9)
    return torch.zeros_like(link.h), torch.ones_like(link.gain[:, :1].expand(link.h.shape[:2]))
"""


@pytest.mark.slow
def test_a_stack_that_kills_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed by others, up to so many; the others are kept."""
    (tmp_path / "killer.py").write_text(KILLER)
    (tmp_path / "deaths").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    power = {"name": "killer:power", "size": 1, "place": str(tmp_path / "deaths")}
    one = scenario(
        {
            "training.rounds": 2,
            "trials": 1,
            "channel": "rayleigh",
            "power": power,
            "engine.memory_gb": 1e-9,
            "sweep": {"power.size": [1, 2, 3]},
        }
    )
    said: list[str] = []
    monkeypatch.setattr(workers, "DEATHS", 2)
    with pytest.raises(FailedStacks, match="every worker that computed it died") as raised:
        sweeping.sweep(one, tmp_path / "out", workers=2, tell=said.append)
    assert "1 of 3 stacks failed" in str(raised.value)
    assert len(os.listdir(tmp_path / "deaths")) == 2
    lost = [text for text in said if "a worker is lost (killed, or out of memory)" in text]
    assert len(lost) == 1
    assert lost[-1].endswith("from its last checkpoint (try 2 of 2)")


@pytest.mark.slow
def test_progress_comes_from_the_middle_of_a_stack(tmp_path: Path) -> None:
    told: list[int] = []
    one = scenario({"training.rounds": 600, "trials": 1})
    sweeping.sweep(one, tmp_path, lambda done, *_: told.append(done), workers=1)
    assert told == sorted(told)
    assert told[-1] == 600
    assert len(told) > 1


@pytest.mark.parametrize(
    ("stated", "shares", "threads"),
    [("3", 1, "3"), ("64", 2, "4"), ("", 2, "4")],
)
def test_workers_have_no_more_threads_than_the_user_lets_a_program_have(
    stated: str, shares: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    for environment in workers._build_environments(shares):
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == threads


@pytest.mark.parametrize("wrong", [-1, True])
def test_a_wrong_number_of_workers_is_a_sentence(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="workers: expected a whole number of at least 0, got"):
        sweeping.sweep(scenario(), tmp_path, workers=wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="works through files, and a run in memory has none"):
        sweeping.run(scenario(), workers=2)
