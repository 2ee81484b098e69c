"""Trackers with the real packages: what TensorBoard, W&B and MLflow then have of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract.small import scenario

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
