"""What a run refuses, `otafl check` refuses with the same sentence, by a rehearsal on the data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command import call

from otafl.core.errors import UserError
from otafl.preflight import reduce_scenario, rehearse, report, to_problem
from otafl.scenario import ScenarioError, load_scenario
from otafl.user_code import sources

pytestmark = pytest.mark.exact

OWN = """\
import numpy as np
import torch
from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.data import DataSet

number = 3

def deaf(link):
    return link.h, torch.zeros_like(link.h[..., 0].real)

def blobs(samples=60):
    x = np.random.default_rng(0).random((samples, 5))
    return DataSet(x, np.arange(samples) % 3, x, np.arange(samples) % 3, classes=3)

def no_file():
    return open("nowhere.csv")

def linear(input_shape, classes):
    return torch.nn.Linear(input_shape[0], classes)

def wants_six(input_shape, classes):
    return torch.nn.Linear(6, classes)

seen = []

def fades(draw):
    seen.append(draw.devices)
    return draw.draw_complex_normal()

def fails(run):
    return run.nothing

class Later(FedAvg):
    def update_server(self, server, received, context):
        return server["modl"]

def plain(input_shape, classes):
    return torch.nn.Linear(64, classes)

def loud(draw):
    return 2 * draw.draw_complex_normal()
"""
ERROR = "otafl: error: "
SMALL: dict[str, Any] = {
    "name": "s",
    "model": {"hidden": [4]},
    "devices": {"count": 4},
    "training": {"rounds": 2, "batch_size": 4},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with a module of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_parts.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("def f(:\n")
    yield tmp_path
    for name in [one for one in sys.modules if one.startswith("own_")]:
        del sys.modules[name]
    sources._imported.clear()


def named(section: str, **keys: Any) -> list[Any]:
    """What a name `module:callable` of a section can lack."""
    return [
        ({section: name, **keys}, f"{section}.name: '{name}': {said}")
        for name, said in (
            ("no_such_module:f", "No module named 'no_such_module'"),
            ("own_parts:no", "'no' does not exist in module 'own_parts'"),
            ("own_parts:number", "'number' is not callable in module 'own_parts'"),
            ("own_broken:f", "'own_broken' cannot be imported (SyntaxError: "),
        )
    ]


def partition(name: str, said: str, devices: int = 4, **keys: Any) -> Any:
    return {"data": {"partition": {"name": name, **keys}}, "devices.count": devices}, said


CASES: list[tuple[dict[str, Any], str]] = [
    *named("power"),
    ({"power": "own_parts:deaf"}, "power.name: 'own_parts:deaf' returned, at trial 0, segment 0"),
    ({"channel": "own_parts:loud"}, "channel.name: 'own_parts:loud' has a mean |h|^2 of"),
    partition("natural", "data.partition: 'natural' needs a data set whose samples have users"),
    (
        {"data": {"name": "ridge", "users": 3}, "model": "linear"},
        "4 devices need 4 users and the data set has 3; use fewer devices",
    ),
    partition("iid", "devices.count: 1438 devices need a training sample each", 1438),
    ({"data.validation": 1e-4}, "data.validation: 0.0001 of 1437 training samples leaves 1437"),
    (
        {"model": {"name": "conv_net", "channels": [2] * 4}},
        "model.name: images of 1x1 pixels",
    ),
    ({"model": {"name": "vgg8", "kernel": 17, "padding": "valid"}}, "model.kernel: got 17, but"),
    (
        {
            "model": {"name": "vgg", "norm": "batch", "blocks": [1] * 4, "channels": [2] * 4},
            "training.batch_size": 1,
        },
        "training.batch_size: batch normalisation of a single sample with one pixel",
    ),
    ({"algorithm": "fedbn"}, "algorithm.name: 'fedbn' needs a model with normalisation"),
    (
        {"algorithm": "fedrep", "model": "softmax_regression"},
        "algorithm.name: 'fedrep' needs a model with a layer",
    ),
    (
        {"algorithm": "fedpac", "model": "softmax_regression", "transport": "digital"},
        "algorithm.name: 'fedpac' needs a",
    ),
    (
        {"algorithm": "pfedbayes", "model": "cnn"},
        "algorithm.name: 'pfedbayes' needs a model of fully",
    ),
    (
        {"algorithm": "heterofl", "model": "lstm"},
        "algorithm.name: 'heterofl' needs a model of several",
    ),
    (
        {"algorithm": "fedhm", "model": "own_parts:plain", "transport": "digital"},
        "algorithm.name: 'fedhm' needs a model whose layers",
    ),
    (
        {"algorithm": "heterofl", "codec": "compressed_sensing"},
        "codec.name: 'compressed_sensing' mixes all coordinates",
    ),
    ({"codec": "matrix_sensing"}, "codec.name: 'matrix_sensing' measures matrices"),
    (
        {"codec": {"name": "matrix_sensing", "rows": 64}, "algorithm": "prox_sgd"},
        "codec.rows: 64 measurements of",
    ),
]


def tree(keys: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: dict(value) if isinstance(value, dict) else value for key, value in SMALL.items()}
    for key, value in keys.items():
        section, _, rest = key.partition(".")
        if rest:
            out[section] = {**out.get(section, {}), rest: value}
        else:
            out[section] = value
    return out


def said(capsys: pytest.CaptureFixture, *command: object) -> str:
    """What a command that ends with 2 prints."""
    call(*command, code=2)
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    return told.err.removesuffix("\n")


def test_a_rehearsal_finds_what_a_run_refuses(home: Path) -> None:
    lacking = {}
    for keys, sentence in CASES:
        with pytest.raises(ScenarioError) as found:
            report(tree(keys), try_fn=rehearse)
        if sentence not in str(found.value):
            lacking[sentence] = str(found.value)
    assert not lacking


@pytest.mark.parametrize(
    "place",
    [
        next(i for i, (_, text) in enumerate(CASES) if start in text)
        for start in ("no_such_module", "has a mean |h|^2", "1438 devices", "'fedbn' needs")
    ],
)
def test_check_says_what_run_says(place: int, home: Path, capsys: pytest.CaptureFixture) -> None:
    keys, sentence = CASES[place]
    text = yaml.safe_dump(tree(keys))
    (home / "s.yaml").write_text(text)
    checked = said(capsys, "check", "s.yaml")
    ran = said(capsys, "run", "s.yaml", "--quiet", "--out", "r.nc")
    assert sentence in checked
    assert "\n" not in checked
    file, line, _, alone = checked.removeprefix(ERROR).split(":", 3)
    assert ran in (f"{ERROR}{alone.strip()}", checked)  # reading errors have a place in both
    assert file == "s.yaml"
    section = next(iter(keys)).partition(".")[0]
    words = [*alone.strip().partition(":")[0].split("."), section]
    assert any(word in text.splitlines()[int(line) - 1] for word in words)


def test_a_sweep_refuses_a_misfit_before_it_computes(
    home: Path, capsys: pytest.CaptureFixture
) -> None:
    (home / "s.yaml").write_text(
        yaml.safe_dump(tree({"sweep": {"algorithm": ["fedavg", "fedbn"]}}))
    )
    assert "'fedbn' needs a model" in said(capsys, "sweep", "s.yaml", "--out", "out")
    assert not (home / "out" / "parts").exists()


@pytest.mark.parametrize("topology", ["star", "graph", "cells"])
def test_check_measures_as_a_run_does(
    topology: str, home: Path, capsys: pytest.CaptureFixture
) -> None:
    """A method of the user's trains, but fails when it is measured."""
    (home / "own_measure.py").write_text(
        "from otafl.algorithms.baselines.fedavg import FedAvg\n\nclass Own(FedAvg):\n"
        "    def compute_metrics(self, server, devices):\n"
        "        return {'gap': server['absent'].sum(1)}\n"
    )
    keys = {"algorithm": "own_measure:Own", "topology": topology}
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    call("check", "s.yaml", code=2)
    assert "own_measure.py:5" in capsys.readouterr().err


def test_all_that_is_wrong_with_modules_is_said(home: Path, capsys: pytest.CaptureFixture) -> None:
    keys = {
        "power": "own_parts:no",
        "model": "nothing:f",
        "sweep": {"csi": ["perfect", "error"]},
    }
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    lines = said(capsys, "check", "s.yaml").splitlines()
    assert len(lines) == 2
    assert "sweep" not in "".join(lines)  # it is wrong at every point


def test_points_of_a_sweep_are_told_apart(home: Path, capsys: pytest.CaptureFixture) -> None:
    keys = {"sweep": {"power": ["gbma", "own_parts:no"], "channel.snr_db": [0, 10]}}
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    assert "sweep: power=own_parts:no: power.name: 'own_parts:no'" in said(
        capsys, "check", "s.yaml"
    )


def test_what_just_fits(home: Path) -> None:
    for keys in (
        {"data": {"test": "per_device"}, "devices.count": 718},
        {"devices.count": 1437},
    ):
        report(tree(keys), try_fn=rehearse)


def test_a_sentence_names_its_key() -> None:
    texts = ("a.b_c: x", "a.rank[1]: x", "a: x", "the file a.b: x")
    keys = [to_problem(UserError(text)).path for text in texts]
    assert keys == [("a", "b_c"), ("a", "rank"), ("a",), ()]


def check(capsys: pytest.CaptureFixture, code: int = 0, **keys: Any) -> str:
    """Return what a check prints to stderr."""
    Path("s.yaml").write_text(yaml.safe_dump(tree(keys) | {"trials": 9}, sort_keys=False))
    call("check", "s.yaml", code=code)
    return str(capsys.readouterr().err)


PARTS = {"data": "own_parts:blobs", "model": "own_parts:linear", "channel": "own_parts:fades"}


def test_a_check_reads_the_data_and_writes_nothing(
    home: Path, capsys: pytest.CaptureFixture
) -> None:
    err = check(capsys, **PARTS | {"devices.count": 12})
    assert "s.yaml: valid; 1 point; one trial takes" in err
    assert set(sys.modules["own_parts"].seen) == {12}  # the whole population fades
    names = {one.name for one in home.iterdir()} - {"__pycache__"}  # which Python writes itself
    assert names == {"s.yaml", "own_parts.py", "own_broken.py"}


def test_a_check_names_the_part_that_fails(home: Path, capsys: pytest.CaptureFixture) -> None:
    err = check(capsys, code=2, **PARTS | {"power": "own_parts:fails"})
    assert "s.yaml:10:1: power.name: 'own_parts:fails' raises AttributeError at own_parts.py" in err
    err = check(capsys, code=2, data="own_parts:no_file")
    assert "data.name: 'own_parts:no_file' raises FileNotFoundError at own_parts.py:" in err
    err = check(capsys, code=2, **PARTS | {"model": "own_parts:wants_six"})
    assert "model.name: 'own_parts:wants_six' raises RuntimeError: mat1 and mat2" in err


def test_a_check_does_not_call_the_tracker(home: Path, capsys: pytest.CaptureFixture) -> None:
    check(capsys, track="own_parts:fails")
    err = check(capsys, code=2, track="own_parts:nowhere")
    assert "track.name: 'own_parts:nowhere': 'nowhere' does not exist in" in err


def test_a_check_says_what_it_lacks_and_does_not_try(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("OTAFL_DATA_DIR", str(home / "empty"))
    err = check(capsys, data="mnist")
    assert "s.yaml: valid; 1 point, 1 of them without a rehearsal\n" in err
    assert "; run `otafl data get mnist`, or set" in err
    assert "until then it is not tried whether data, partition, model and method fit" in err
    monkeypatch.setitem(sys.modules, "datasets", None)
    err = check(capsys, data={"name": "hf", "dataset": "own"})
    assert "data.name: 'hf' needs a package (" in err
    assert "run pip install 'otafl[hf]'; until then it is not tried" in err


def test_a_small_scenario_is_as_small_as_can_be() -> None:
    devices = {"count": 5000, "participants": 50, "senders": 3}
    training = {"rounds": 9, "local_steps": 1, "batch_size": 50, "duration_s": 9}
    whole = load_scenario({"name": "s", "devices": devices, "training": training})
    less = reduce_scenario(whole)
    assert (less.devices.count, less.devices.participants, less.devices.senders) == (1000, 4, 3)
    assert (less.training.rounds, less.training.local_steps) == (1, 1)
    assert (less.training.batch_size, less.training.duration_s) == (4, None)
    large = load_scenario({"name": "s", "model": {"hidden": [2000]}, "devices": devices})
    assert reduce_scenario(large).devices.count == 4


def test_errors_of_otafl_are_not_told_as_the_users() -> None:
    scenario = load_scenario({"name": "s"})
    broken = scenario.model_copy(update={"power": None})
    with pytest.raises(AttributeError):
        rehearse(broken)
