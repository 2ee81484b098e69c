"""What `otafl check --dry-run` finds: each part of the user's that fails, each for itself, and what
the data hold; nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command import call
from support.own_modules import write_custom_module

from otafl.preflight.small_round import SmallRound, reduce_scenario
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact

OWN = """\
import numpy as np
import torch
from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.codecs.base import Codec
from otafl.data import DataSet

seen = []

def blobs(samples=60):
    x = np.random.default_rng(0).random((samples, 5))
    return DataSet(x, np.arange(samples) % 3, x, np.arange(samples) % 3, classes=3)

def no_file():
    return open("nowhere.csv")

def linear(input_shape, classes):
    return torch.nn.Linear(input_shape[0], classes)

def wants_six(input_shape, classes):
    return torch.nn.Linear(6, classes)

def loud(draw):
    seen.append(draw.devices)
    return draw.draw_complex_normal()

def fades(draw):
    return draw.nothing()

def full(link):
    return (link.budget[:, None] / link.symbol_power).sqrt(), torch.ones(link.h.shape[:2])

def fails(run):
    return run.nothing

class Nothing(Codec):
    def encode_group(self, group, index, memory, context):
        return None

class Later(FedAvg):
    def update_server(self, server, received, context):
        return server["modl"]
"""
PARTS = {
    "data": "tried_parts:blobs",
    "model": "tried_parts:linear",
    "channel": "tried_parts:loud",
    "power": "tried_parts:full",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with a module of the user's."""
    with write_custom_module("tried_parts", OWN, tmp_path, monkeypatch) as folder:
        yield folder


def write(**keys: Any) -> None:
    tree = {"name": "s", "devices": {"count": 12}, "training": {"rounds": 50}, "trials": 9} | keys
    Path("s.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def dry(capsys: pytest.CaptureFixture, code: int = 0, **keys: Any) -> tuple[list[str], str]:
    """What a dry run prints of what it tried, and its errors."""
    write(**keys)
    call("check", "s.yaml", "--dry-run", code=code)
    out, err = capsys.readouterr()
    return [line.rpartition(",")[0] for line in out.splitlines()], err


def test_each_part_is_called_and_what_was_done_is_said(
    home: Path, capsys: pytest.CaptureFixture
) -> None:
    said, err = dry(capsys, **PARTS)
    assert said[:4] == [f"{section} '{name}': works" for section, name in PARTS.items()]
    assert said[4].startswith("dry run: 4 rounds of at most 4 of 12 devices, local steps 1 on 4 s")
    assert not err
    assert set(sys.modules["tried_parts"].seen) == {12}  # the population is what it was
    names = {one.name for one in home.iterdir()}
    assert names - {"__pycache__"} == {"s.yaml", "tried_parts.py"}  # which Python writes itself


def test_data_are_tried_without_the_start_of_a_module(capsys: pytest.CaptureFixture) -> None:
    """`start: own` is of the weights of the user's module, and the data are tried with another."""
    said, err = dry(capsys, **PARTS | {"model": {"name": "tried_parts:linear", "start": "own"}})
    assert [line.rpartition(" ")[2] for line in said[:4]] == ["works"] * 4
    assert not err


def test_all_that_fail_are_told_each_at_its_line(capsys: pytest.CaptureFixture) -> None:
    broken = {
        "channel": "tried_parts:fades",
        "power": "tried_parts:fails",
        "codec": "tried_parts:Nothing",
    }
    said, err = dry(capsys, code=2, **PARTS | broken)
    assert [line.rpartition(" ")[2] for line in said] == ["works", "works", *["fails"] * 3]
    errors = [line for line in err.splitlines() if not line.startswith(" ")]
    for line, at, (section, name) in zip(
        errors, ("9:1", "10:1", "11:1"), broken.items(), strict=True
    ):
        assert f"s.yaml:{at}: {section}.name: " in line
        assert name in line
    assert (
        "'NoneType'" in errors[2]
        or "encode_group of 'tried_parts:Nothing' returned a None" in errors[2]
    )


def test_data_and_what_looks_at_them(capsys: pytest.CaptureFixture) -> None:
    """A model that does not fit the samples; nothing is tried on other samples where there are
    none."""
    _, err = dry(capsys, code=2, **PARTS | {"model": "tried_parts:wants_six"})
    assert "model.name: 'tried_parts:wants_six' raises RuntimeError: mat1 and mat2" in err
    said, err = dry(capsys, code=2, **PARTS | {"data": "tried_parts:no_file"})
    assert said == ["data 'tried_parts:no_file': fails"]
    assert "data.name: 'tried_parts:no_file' raises FileNotFoundError at tried_parts.py:14: " in err


def test_a_tracker_is_looked_for_and_not_called(capsys: pytest.CaptureFixture) -> None:
    said, _ = dry(capsys, track="tried_parts:fails", sweep={"channel.snr_db": [0]})
    assert [line.partition(" ")[0] for line in said] == ["a", "dry"]
    _, err = dry(capsys, code=2, track="tried_parts:nowhere")
    assert "s.yaml:7:1: track.name: 'tried_parts:nowhere': 'nowhere' does not exist in" in err


def test_what_check_alone_cannot_see(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("OTAFL_DATA_DIR", str(tmp_path / "empty"))
    write(data="mnist")
    call("check", "s.yaml")
    capsys.readouterr()
    _, err = dry(capsys, code=2, data="mnist")
    assert "otafl data get mnist" in err


def test_points_that_share_a_stack_are_tried_once(capsys: pytest.CaptureFixture) -> None:
    sweep = {"channel.snr_db": [0, 10, 20], "algorithm": ["fedavg", "tried_parts:Later"]}
    said, err = dry(capsys, code=2, sweep=sweep)
    assert said == [
        "a whole round (fedavg, rayleigh, gbma, over_the_air): works",
        "algorithm 'tried_parts:Later': fails",
    ]
    assert "sweep: algorithm=tried_parts:Later: algorithm.name: 'tried_parts:Later' raises" in err


def test_a_small_scenario_is_as_small_as_can_be() -> None:
    less = reduce_scenario(
        load_scenario(
            {
                "name": "s",
                "devices": {"count": 5000, "participants": 50, "senders": 3},
                "training": {"rounds": 9, "local_steps": 1, "batch_size": 50, "duration_s": 9},
            }
        )
    )
    assert (less.devices.count, less.devices.participants, less.devices.senders) == (1000, 4, 3)
    training = less.training
    assert (training.rounds, training.local_steps, training.batch_size) == (1, 1, 4)
    assert training.duration_s is None


def test_errors_of_otafl_are_not_told_as_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(scenario: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("otafl.preflight.small_round._run", breaks)
    with pytest.raises(ZeroDivisionError):
        SmallRound(lambda text: None)(load_scenario({"name": "s"}))
