"""Trackers with the real packages: what TensorBoard, W&B and MLflow then have of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract.small import scenario
from support.pages import DOCS, write_files

from otafl import sweeping

pytestmark = pytest.mark.slow


def test_tensorboard_reads_what_the_result_has(tmp_path: Path) -> None:
    """A run a trial of a point, a scalar a variable, each round once, also after it is run again
    with a file that was cut."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    swept = scenario({"track": "tensorboard", "trials": 2, "sweep": {"channel.snr_db": [0, 20]}})
    file = tmp_path / "x.track" / "0_snr_db=0" / "trial_1" / "events.out.tfevents.otafl"
    sweeping.run(swept, tmp_path / "x.nc")
    file.write_bytes(file.read_bytes()[:-7])
    (tmp_path / "x.nc").unlink()
    result = sweeping.run(swept, tmp_path / "x.nc")
    board = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "x.track"))
    board.Reload()
    assert set(board.Runs()) == {
        f"{point}/trial_{trial}" for point in ("0_snr_db=0", "1_snr_db=20") for trial in (0, 1)
    }
    for name in ("test_accuracy", "aggregation_nmse", "device_energy_j", "airtime_s"):
        scalars = board.Scalars("0_snr_db=0/trial_1", name)
        wanted = result[name].sel(snr_db=0, trial=1)
        wanted = wanted.sum([dim for dim in wanted.dims if dim != "round"]).dropna("round")
        wanted = wanted.sel(round=slice(1 if name == "aggregation_nmse" else 0, None))
        assert [one.step for one in scalars] == list(wanted["round"].values)
        np.testing.assert_allclose([one.value for one in scalars], wanted, rtol=1e-6)


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep is an experiment with a run each."""
    mlflow = pytest.importorskip("mlflow")
    write_files(DOCS / "tracking.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
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


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline: what is kept for a later `wandb sync`."""
    pytest.importorskip("wandb")
    write_files(DOCS / "tracking.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    track = {"name": "track_wandb:track", "mode": "offline", "dir": str(tmp_path)}
    swept = scenario({"track": track, "trials": 2, "sweep": {"channel.snr_db": [0, 10]}})
    result = sweeping.run(swept, tmp_path / "x.nc")
    assert result["test_accuracy"].notnull().all()
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 4
