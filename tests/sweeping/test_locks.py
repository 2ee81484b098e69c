"""Programs that meet in one folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from contract.small import scenario
from support.command import SMALL
from support.programs import start

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.sweeping import store


@pytest.mark.exact
def test_the_second_run_into_a_file_is_told_of_the_first(tmp_path: Path) -> None:
    out = tmp_path / "r.nc"
    with (
        store.hold_folder(sweeping.get_unfinished_folder(out), str(out)),
        pytest.raises(
            UserError,
            match=r"r\.nc: another `otafl run` makes it; wait for it, or give another place",
        ),
    ):
        sweeping.run(scenario({}), out)
    assert sweeping.run(scenario({"training.rounds": 1}), out) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.nc", "r.nc.sha256"]


@pytest.mark.slow
def test_four_clients_at_once_end_in_sentences(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL + "sweep: {power.name: [gbma, ci, full]}\n")
    command = "-m", "otafl.cli", "run", "s.yaml", "--out", "r.nc", "--quiet"
    clients = [start(*command, cwd=tmp_path, stderr=subprocess.PIPE) for _ in range(4)]
    said = {client.communicate()[1] for client in clients}
    codes = [client.returncode for client in clients]
    assert 0 in codes
    assert set(codes) <= {0, 2}
    for text in said:
        assert not text or text.startswith("otafl: error: r.nc: another `otafl run` makes it")
        assert text.count("\n") <= 1
    assert open_results(tmp_path / "r.nc").attrs["complete"] == 1
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["r.nc", "r.nc.sha256", "r.png", "s.yaml"]
