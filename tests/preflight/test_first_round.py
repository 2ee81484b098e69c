"""What a run refuses, `otafl check` refuses with the same sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command import call

from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.preflight import first_round
from otafl.user_code import sources

pytestmark = pytest.mark.exact

OWN = """\
import torch

number = 3

def shapes(link):
    return link.h, link.h

def takes(link, share):
    return link.h, link.gain

def states(link):
    return link.h, link.gain
states.constraint = "most"

def deaf(link):
    return link.h, torch.zeros_like(link.h[..., 0].real)

def text(input_shape, classes):
    return "model"

class Counting(torch.nn.Linear):
    def __init__(self, classes):
        super().__init__(64, classes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return super().forward(x)

def running(input_shape, classes):
    return Counting(classes)

def narrow(input_shape, classes):
    return torch.nn.Linear(64, classes - 1)

def plain(input_shape, classes):
    return torch.nn.Linear(64, classes)

def antennas(draw):
    return draw.draw_normal(2, 2)

def loud(draw):
    return 2 * draw.draw_complex_normal()

class Fixed:
    pass
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
    *named("data"),
    *named("model"),
    *named("algorithm"),
    *named("channel"),
    *named("power"),
    ({"power": "own_parts:takes"}, "power.share: must be given, as 'own_parts:takes' has"),
    (
        {"power": {"name": "own_parts:shapes", "a": 1}},
        "power.a: unknown key of 'own_parts:shapes', which has no",
    ),
    ({"power": "own_parts:states"}, "power.name: 'own_parts:states' has the attribute constraint"),
    ({"power": "own_parts:shapes"}, "power.name: 'own_parts:shapes' returned tensors of shapes"),
    ({"power": "own_parts:deaf"}, "power.name: 'own_parts:deaf' returned, at trial 0, segment 0"),
    ({"model": {"name": "own_parts:plain", "a": 1}}, "model.a: unknown key of 'own_parts:plain'"),
    ({"model": "own_parts:text"}, "model.name: 'own_parts:text' returned a str"),
    (
        {"model": "own_parts:running"},
        "model: a forward pass changes the buffer 'seen', and such state is",
    ),
    ({"model": "own_parts:narrow"}, "model: the module gives scores of shape [1, 9] for one sam"),
    ({"channel": "own_parts:antennas"}, "channel.name: 'own_parts:antennas' returned the shape"),
    ({"channel": "own_parts:loud"}, "channel.name: 'own_parts:loud' has a mean |h|^2 of"),
    ({"channel": "own_parts:Fixed"}, "channel.name: 'own_parts:Fixed' is a class whose instances"),
    partition("natural", "data.partition: 'natural' needs a data set whose samples have users"),
    partition("iid", "devices.count: 1438 devices need a training sample each", 1438),
    partition("shards", "shards_per_device: 4 devices x 400 are", shards_per_device=400),
    partition("lognormal", "data.partition.min_samples: 4 devices x 360 are", min_samples=360),
    partition("dirichlet", "data.partition.min_samples: 4 devices x 360 are", min_samples=360),
    partition("dirichlet_mix", "samples_per_device: 4 devices x 360 are", samples_per_device=360),
    partition(
        "label_skew", "classes_per_device: got 11; must be at most 10", classes_per_device=11
    ),
    partition("label_skew", "classes_per_device: 900 devices x 2 are more than the 1437", 900),
    partition(
        "class_window", "classes_per_device: got 11; must be at most 10", classes_per_device=11
    ),
    partition("class_window", "first_samples: 4 devices x 400 are more", first_samples=200),
    ({"data.train_samples": 1438}, "data.train_samples: got 1438; must be at most 1437"),
    ({"data.validation": 1e-4}, "data.validation: 0.0001 of 1437 training samples leaves 1437"),
    (
        {"data.test": "per_device", "devices.count": 1437},
        "data.test: per_device splits the 1 samples of device 360 into 0 for",
    ),
    (
        {"model": {"name": "cnn", "kernel": 9, "padding": "valid"}},
        "model.kernel: got 9, but convolution 1 has an image of only 8x8",
    ),
    ({"model": {"name": "cnn", "pool": 9}}, "model.pool: got 9, but convolution 1 leaves an image"),
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
        {"algorithm": "fedrlr", "model": "lstm"},
        "algorithm.name: 'fedrlr' needs a model that is a chain",
    ),
    (
        {"algorithm": "tdpfed", "model": "lstm"},
        "algorithm.name: 'tdpfed' needs a model that is a chain",
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
        {"algorithm": {"name": "fedhm", "dense_prefix": 1}, "transport": "digital"},
        "algorithm.dense_prefix: got 1, which leaves no layer to factorise",
    ),
    (
        {"algorithm": {"name": "tdpfed", "weights": "uniform"}, "codec": "obda"},
        "codec.name: 'obda' gives the server a vote",
    ),
    ({"algorithm": "fedrlr", "codec": "obda"}, "codec: 'obda' takes a vote of signs"),
    (
        {"algorithm": "heterofl", "codec": "compressed_sensing"},
        "codec.name: 'compressed_sensing' mixes all coordinates",
    ),
    ({"codec": "matrix_sensing"}, "codec.name: 'matrix_sensing' measures matrices"),
    (
        {"codec": {"name": "matrix_sensing", "side": 7}, "algorithm": "prox_sgd"},
        "codec.side: no matrix has a side of 7; use one of 4, 10, 64",
    ),
    (
        {"codec": {"name": "matrix_sensing", "rows": 64}, "algorithm": "prox_sgd"},
        "codec.rows: 64 measurements of",
    ),
    (
        {"downlink": "random_subset", "algorithm": "heterofl"},
        "downlink: 'random_subset' sends a part of one model to all devices",
    ),
    (
        {"transport": {"name": "digital", "coding": "ldpc", "rate": "mcs"}},
        "transport.coding: 'ldpc' sends words of bits, and this codec has none",
    ),
    ({"channel": {"name": "trace", "path": "/no.nc"}}, "channel.path: there is no file '/no.nc'"),
    (
        {"devices.compute": {"name": "csv", "file": "/no.csv"}},
        "devices.compute.file: '/no.csv' cannot be read",
    ),
    (
        {"devices.availability": {"name": "trace", "file": "/no.csv"}},
        "devices.availability.file: '/no.csv' cannot be read",
    ),
    (
        {
            "algorithm": "heterofl",
            "devices.capacity_levels": {"name": "memory", "memory_mb": [1e-6]},
        },
        "devices.capacity_levels.memory_mb: got 1e-06, but training the smallest model takes",
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


@pytest.mark.parametrize(("keys", "sentence"), CASES)
def test_check_says_what_run_says(
    keys: dict[str, Any], sentence: str, home: Path, capsys: pytest.CaptureFixture
) -> None:
    text = yaml.safe_dump(tree(keys))
    (home / "s.yaml").write_text(text)
    checked = said(capsys, "check", "s.yaml")
    ran = said(capsys, "run", "s.yaml", "--quiet", "--out", "r.nc")
    assert sentence in checked
    assert "\n" not in checked
    place, _, alone = checked.removeprefix(ERROR).partition(": ")
    assert ran in (f"{ERROR}{alone}", checked)  # what reading tells, a run tells with its place
    file, line, column = place.split(":")
    assert file == "s.yaml"
    section = next(iter(keys)).partition(".")[0]
    assert any(word in text.splitlines()[int(line) - 1] for word in sentence_words(alone, section))
    assert int(column) >= 1


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


def sentence_words(sentence: str, section: str) -> list[str]:
    """What the line of the file that is named may hold: the last key of the sentence, or what
    holds it."""
    key = sentence.partition(":")[0].partition("[")[0]
    return [*key.split("."), section]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"data": "cifar10", "model": "lstm"},
            "model.name: 'lstm' needs sequences of shape",
        ),
        (
            {"data": "mnist", "devices.count": 60_001},
            "devices.count: 60001 devices need",
        ),
        ({"data": {"name": "cifar10", "partition": "natural"}}, "data.partition: 'natural' needs"),
        (
            {"data": {"name": "ridge", "users": 3}, "model": "linear", "devices.count": 4},
            "4 devices need 4 users and the data set has 3; use fewer devices",
        ),
    ],
)
def test_data_that_are_not_here(
    keys: dict[str, Any], sentence: str, home: Path, capsys: pytest.CaptureFixture
) -> None:
    """What data sets declare is enough."""
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    assert sentence in said(capsys, "check", "s.yaml")


def test_all_that_is_wrong_with_modules_and_data_is_said(
    home: Path, capsys: pytest.CaptureFixture
) -> None:
    keys = {
        "power": "own_parts:no",
        "model": "nothing:f",
        "data": {"partition": {"name": "natural"}},
        "sweep": {"csi": ["perfect", "error"]},
    }
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    lines = said(capsys, "check", "s.yaml").splitlines()
    assert len(lines) == 3
    assert "sweep" not in "".join(lines)  # it is wrong at every point


def test_points_of_a_sweep_are_told_apart(home: Path, capsys: pytest.CaptureFixture) -> None:
    keys = {"sweep": {"power": ["gbma", "own_parts:no"], "channel.snr_db": [0, 10]}}
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    assert "sweep: power=own_parts:no: power.name: 'own_parts:no'" in said(
        capsys, "check", "s.yaml"
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"power": "own_parts:f", "data": "own_parts:g", "model": "own_parts:plain"},
        {"data": {"name": "femnist", "partition": "natural"}},
        {"data": {"name": "sent140", "partition": "natural"}, "model": "lstm"},
        pytest.param({"data": "cifar100", "model": "resnet18"}, marks=pytest.mark.slow),
        {"data": {"partition": {"name": "dirichlet", "min_samples": 359}}},
        {"data": {"test": "per_device"}, "devices.count": 718},
        {"devices.count": 1437},
    ],
)
def test_what_just_fits(keys: dict[str, Any], home: Path, capsys: pytest.CaptureFixture) -> None:
    (home / "own_parts.py").write_text(OWN + FITTING)
    (home / "s.yaml").write_text(yaml.safe_dump(tree(keys)))
    call("check", "s.yaml")
    assert "valid; 1 point" in capsys.readouterr().err


FITTING = """
def f(link):
    bound = (link.budget / link.symbol_power.amax(1)).sqrt()[:, None]
    p = torch.where(link.transmit_mask[:, None], bound, 0.0)
    return p.to(link.h.dtype), torch.ones_like(link.h[..., 0].real)

def g():
    raise ZeroDivisionError("is only read by a run")
"""


def test_errors_of_made_up_samples_say_nothing() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    assert first_round.catch_problem(fails) is None


def test_a_sentence_names_its_key() -> None:
    def refuse(text: str) -> Problem | None:
        def attempt() -> None:
            raise UserError(text)

        return first_round.catch_problem(attempt)

    keys = [refuse(text).path for text in ("a.b_c: x", "a.rank[1]: x", "a: x", "the file a.b: x")]
    assert keys == [("a", "b_c"), ("a", "rank"), ("a",), ()]
