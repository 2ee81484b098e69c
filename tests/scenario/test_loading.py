"""Reading a scenario: files, mappings, defaults, overrides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.scenarios import make_scenario, write_scenario

from otafl.channels.rayleigh import Rayleigh
from otafl.power.inversion import TruncatedChannelInversion as Tci
from otafl.scenario import (
    expand,
    load_scenario,
    make_stack_key,
    to_yaml,
)
from otafl.scenario.errors import ProblemLocator
from otafl.scenario.reading import add_base, read_file
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.exact


def test_numbers_of_numpy_and_tuples_are_taken_from_a_mapping() -> None:
    got = make_scenario(
        model={"hidden": (np.int64(3), 4)}, sweep={"channel.snr_db": np.array([0.0, 2.5])}
    )
    assert got.model.hidden == (3, 4)
    assert got.sweep == {"channel.snr_db": [0.0, 2.5]}
    assert load_scenario(parse(to_yaml(got)).data) == got


def test_overrides(tmp_path: Path) -> None:
    got = load_scenario(
        write_scenario(tmp_path, "name: x\npower: tci\ntraining:\n"),
        [
            "power.threshold=5e-1",
            "channel.snr_db=3",
            "model.hidden=[8, 9]",
            "training.rounds=7",
            "devices.compute=fixed",
            "devices.compute.flops_per_s=2e9",
            "csi={name: error, variance: 0.2}",
        ],
    )
    assert got.power == Tci(threshold=0.5)
    assert got.channel == Rayleigh.Settings(snr_db=3)
    assert got.model.hidden == (8, 9)
    assert got.training.rounds == 7
    assert got.devices.compute.flops_per_s == 2e9
    assert got.csi.variance == 0.2


def test_sections_that_no_axis_changes_are_validated_once() -> None:
    """A sweep of ten thousand points is then checked in seconds."""
    one = make_scenario(
        algorithm={"name": "fedrlr", "rank": 2},
        model={"name": "mlp", "hidden": [8, 8]},
        channel="rician",
        sweep={"channel.snr_db": [0, 10]},
    )
    first, second = (point.scenario for point in expand(one))
    assert first.channel is not second.channel
    assert first.algorithm is second.algorithm
    assert first.model is second.model
    assert make_stack_key(first) == make_stack_key(second)


def test_relative_paths_count_from_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder of the YAML file, a base's from the base's; otherwise the working folder."""
    study, base, home = (tmp_path / name for name in ("study", "base", "home"))
    for folder in (study, base, home):
        folder.mkdir()
    (base / "base.yaml").write_text("name: b\nmodel: {start: {name: file, path: w.pt}}\n")
    text = """
    name: s
    extends: ../base/base.yaml
    channel: {name: trace, path: measured.npy}
    data: {name: digits}
    devices: {compute: {name: csv, file: ~/devices.csv}}
    sweep: {topology: [star, {name: graph, shape: file, path: weights.csv}]}
    """
    (study / "s.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    tree, _ = read_file(Path("study/s.yaml"))
    assert tree["channel"]["path"] == str(study / "measured.npy")
    assert tree["devices"]["compute"]["file"] == str(home / "devices.csv")
    assert tree["sweep"]["topology"][1]["path"] == str(study / "weights.csv")
    merged, _ = add_base(tree, ProblemLocator(), study)
    assert merged["model"]["start"]["path"] == str(base / "w.pt")
    (study / "swept.yaml").write_text(
        "name: s\nchannel: trace\nsweep: {channel.path: [measured.npy]}\n"
    )
    tree, _ = read_file(Path("study/swept.yaml"))
    assert tree["sweep"]["channel.path"] == [str(study / "measured.npy")]
    near, keys = str(tmp_path / "near.npy"), {"name": "trace", "path": "near.npy"}
    assert load_scenario("study/s.yaml", ["channel.path=near.npy"]).channel.path == near
    assert load_scenario({"name": "s", "channel": keys}).channel.path == near
