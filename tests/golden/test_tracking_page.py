"""docs/tracking.md: its scenario, commands and trackers, run as they stand.

W&B offline and MLflow with a database file, where the packages are installed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from contract.small import scenario

from otafl import sweeping
from otafl.cli import main

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page's blocks, in the working folder."""
    for language, text in BLOCK.findall(PAGE.read_text()):
        first = text.partition("\n")[0]
        if language != "sh" and first.startswith("# "):
            (tmp_path / first.removeprefix("# ")).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_the_page_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    for line in "".join(text for language, text in blocks if language == "sh").splitlines():
        with pytest.raises(SystemExit) as left:
            main(line.split()[1:])
        assert not left.value.code
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("trial_1 ")][-1] == "trial_1 ends"
    assert len([line for line in said if re.match(r"trial_0 \d+ [\d.]+$", line)]) == 5
    listed = re.findall(r"^    (results/watched.track/\S+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(map(str, Path().glob("results/watched.track/*/*")))
    (code,) = (text for language, text in blocks if text.startswith("import json"))
    exec(compile(code, PAGE.name, "exec"), {})
    assert re.match(r"gbma 0 20 0\.\d+\ngbma 1 20 ", capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
def test_mlflow(tmp_path: Path) -> None:
    """A sweep is an experiment with a run each."""
    mlflow = pytest.importorskip("mlflow")
    track = {"name": "track_mlflow:track", "uri": f"sqlite:///{tmp_path}/own.db"}
    swept = scenario({"track": track, "trials": 1, "sweep": {"channel.snr_db": [0, 10]}})
    result = sweeping.run(swept, tmp_path / "x.nc")
    client = mlflow.MlflowClient(track["uri"])
    home = client.get_experiment_by_name("small").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([home])}
    assert set(runs) == {"0_snr_db=0/trial_0", "1_snr_db=10/trial_0"}
    one = runs["1_snr_db=10/trial_0"].info
    told = client.get_metric_history(one.run_id, "test_accuracy")
    assert one.status == "FINISHED"
    wanted = result["test_accuracy"].sel(snr_db=10, trial=0)
    assert [(one.step, one.value) for one in told] == list(enumerate(wanted.values))


@pytest.mark.usefixtures("folder")
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline: what is kept for a later `wandb sync`."""
    pytest.importorskip("wandb")

    monkeypatch.setenv("WANDB_SILENT", "true")
    track = {"name": "track_wandb:track", "mode": "offline", "dir": str(tmp_path)}
    swept = scenario({"track": track, "trials": 2, "sweep": {"channel.snr_db": [0, 10]}})
    result = sweeping.run(swept, tmp_path / "x.nc")
    assert result["test_accuracy"].notnull().all()
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 4
