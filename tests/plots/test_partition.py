"""The picture of a partition: what is counted, which axes are panels, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import engine, scenario

from otafl import sweeping
from otafl.cli import main
from otafl.plots import build_table, partition_data

pytestmark = pytest.mark.exact

ALPHA: dict[str, Any] = {"data.partition": {"name": "dirichlet", "alpha": 0.3}}


def test_counts_are_those_that_a_run_trains_on() -> None:
    """By the sections of the engine that a run puts together, a trial each."""
    keys = {**ALPHA, "data.train_samples": 400, "data.validation": 0.1}
    one = scenario(keys)
    local = engine(keys).parts.samples.training_data
    for trial in range(3):
        counts = partition_data(one, sel={"trial": trial})["samples"].values
        rows = slice(4 * trial, 4 * trial + 4)
        index, count = local.index.view(-1, local.index.shape[-1])[rows], local.count.view(-1)[rows]
        wanted = [
            np.bincount(local.y[own[:many]].numpy(), minlength=10)
            for own, many in zip(index, count.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(counts, wanted)


def test_panels_are_those_that_are_asked_for() -> None:
    """Other axes are at their first value; of devices that a point lacks nothing is known."""
    sweep = {"channel.snr_db": [0, 10], "devices.count": [2, 5]}
    data = partition_data(scenario({**ALPHA, "sweep": sweep}), "device_count")
    assert data.attrs["note"].startswith("normalised SNR: 0 dB; samples of a device: ")
    assert dict(data.sizes) == {"device_count": 2, "device": 5, "class": 10}
    samples = data["samples"].transpose("device_count", "device", "class")
    assert np.isnan(samples[0, 2:]).all()
    assert samples[1].sum() == samples[0].sum() == 300
    alone = partition_data(scenario({**ALPHA, "devices.count": 2}))
    np.testing.assert_array_equal(samples[0, :2], alone["samples"])
    rows = build_table(data)
    assert list(rows) == ["device_count", "device", "class", "samples"]
    assert len(rows) == (2 + 5) * 10
    picked = partition_data(scenario({**ALPHA, "sweep": sweep}), sel={"device_count": 2})
    np.testing.assert_array_equal(picked["samples"], alone["samples"])


@pytest.mark.slow
def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scenario's file and of its result the same; code that a result names is not run."""
    monkeypatch.chdir(tmp_path)
    Path("my_parts.py").write_text(
        "from otafl.data import load\nfrom otafl.data.digits import Digits\n"
        "def data():\n    return load(Digits(train_samples=300))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    tree = "name: p\ndata: {name: 'my_parts:data', partition: dirichlet}\ndevices: {count: 3}\n"
    Path("p.yaml").write_text(tree + "training: {rounds: 1}\n")
    sweeping.run(scenario({"data": {"name": "my_parts:data"}, "training.rounds": 1}), Path("r.nc"))
    assert run("p.yaml", "--csv", "p.csv") == 0
    assert Path("p_partition.png").stat().st_size > 5000
    assert Path("p.csv").read_text().startswith("device,class,samples\n0,0,")
    assert run("r.nc") == 2
    assert run("r.nc", "--trust") == 0
    assert Path("r_partition.png").exists()
    assert run("p.yaml", "--hue", "device") == run("p.yaml", "--x", "round") == 2


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["plot", "--kind", "partition", *arguments])
    return int(left.value.code or 0)
