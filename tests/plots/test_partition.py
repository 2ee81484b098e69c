"""The picture of a partition: what is counted, which axes are panels, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import engine, scenario

from otafl import sweeping
from otafl.cli import main
from otafl.core.errors import UserError
from otafl.plots import build_table, draw, partition_data

pytestmark = pytest.mark.exact

ALPHA: dict[str, Any] = {"data.partition": {"name": "dirichlet", "alpha": 0.3}}


@pytest.mark.parametrize(
    "keys",
    [
        ALPHA,
        {"data.partition": {"name": "label_skew", "classes_per_device": 2}, "data.validation": 0.1},
    ],
)
def test_counts_are_those_that_a_run_trains_on(keys: dict[str, Any]) -> None:
    """By the sections of the engine that a run puts together, a trial each."""
    one = scenario({"data.train_samples": 400, **keys})
    local = engine({"data.train_samples": 400, **keys}).parts.samples.training_data
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
    two = scenario({**ALPHA, "sweep": {"devices.count": [2, 5], "data.train_samples": [100, 300]}})
    with pytest.raises(UserError, match=r"--sel train: not a dim .* did you mean"):
        partition_data(two, sel={"train": 100})
    picked = partition_data(two, sel={"train_samples": 100, "device_count": 5})
    assert picked["samples"].sum() == 100
    assert not picked.attrs["facet"]


def test_bars_are_as_high_as_the_counts() -> None:
    data = partition_data(scenario(ALPHA))
    (ax,) = (ax for ax in draw(data).axes if ax.collections)
    samples = data["samples"].values
    assert [bar.get_label() for bar in ax.collections] == [str(label) for label in range(10)]
    for label, bars in enumerate(ax.collections):
        corners = bars.get_paths()[0].vertices
        for device, counts in enumerate(samples):
            heights = corners[np.abs(corners[:, 0] - device) == 0.5, 1]
            low = counts[:label].sum()
            assert {low, low + counts[label]} <= set(heights), (device, label)


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
