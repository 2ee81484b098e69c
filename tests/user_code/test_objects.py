"""Functions and classes that a scenario in Python gives as objects."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import otafl
from otafl.core.errors import UserError
from otafl.data import DataSet
from otafl.scenario import Scenario, ScenarioError, load_scenario
from otafl.user_code import loading, sources


class Net(nn.Module):
    """Linear, with a width of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(*input_shape, width), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def make_factory(width: int) -> Callable[..., nn.Module]:
    def make(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(64, width), nn.Linear(width, 10))

    return make


def describe(model: Any, **keys: Any) -> Scenario:
    tree = {"name": "given", "data": "digits", "model": model, **keys}
    training = {"rounds": 1, "local_steps": 1, "eval_every": 1, "eval_samples": 20}
    return load_scenario(tree | {"devices": {"count": 2}, "training": training, "trials": 1})


def test_an_object_of_a_module_has_its_name() -> None:
    assert describe({"name": Net, "width": 4}).model.name == f"{__name__}:Net"
    assert describe(Net).model.name == describe(f"{__name__}:Net").model.name


def test_other_objects_have_names_of_their_own() -> None:
    make = make_factory(3)
    names = [sources.name_object(one) for one in (make, make_factory(3), make)]
    assert names[0] == names[2] != names[1]
    assert loading.load(names[0], "model.name")((64,), 10)[0].out_features == 3
    assert sources.name_object(functools.partial(Net, width=4)).startswith(
        "otafl.user_code.sources:Net_"
    )


VALUE = 1.0


class Labels:
    """Source of a data set whose labels are all one value."""

    def __init__(self, value: float) -> None:
        self.own = value

    def __call__(self) -> DataSet:
        return label(self.own)


def label(value: float) -> DataSet:
    x, y = np.ones((8, 1), "f4"), np.full((8, 1), value, "f4")
    return DataSet(x, y, x, y, classes=1)


def read_value() -> float:
    return VALUE


def read_helper() -> DataSet:
    return label(read_value())


LABELS = Labels(1.0)


def change_global(value: float, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sys.modules[__name__], "VALUE", value)
    return lambda: label(VALUE)


def change_helper_global(value: float, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sys.modules[__name__], "VALUE", value)
    return read_helper


def change_attribute(value: float, patch: pytest.MonkeyPatch) -> Any:
    LABELS.own = value
    return LABELS


CHANGES = [change for name, change in list(globals().items()) if name.startswith("change_")]


def describe_labels(data: Any) -> Scenario:
    tree = {"name": "labels", "data": {"name": data, "partition": "iid"}, "model": "linear"}
    training = {"rounds": 1, "local_steps": 1, "eval_every": 1}
    rest = {"loss": "squared", "transport": "ideal", "devices": {"count": 2}, "trials": 1}
    return load_scenario(tree | rest | {"training": training})


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_object_given_now_is_the_one_that_runs(
    change: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    for value in (1.0, 2.0, -1.0):
        scenario = describe_labels(change(value, monkeypatch))
        losses.append(float(otafl.run(scenario).test_mse[0, -1]))
    one = losses[0]  # from weights of zero
    assert losses == pytest.approx([one, 4 * one, one], rel=1e-5)


def test_results_of_an_earlier_run_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of an object whose content is not known; the same loaded scenario runs what it is now."""
    scenario, losses = describe_labels(LABELS), []
    for value in (1.0, 2.0):
        LABELS.own = value
        losses.append(float(otafl.run(scenario).test_mse[0, -1]))
        for compute, out in ((otafl.run, tmp_path / "r.nc"), (otafl.sweep, tmp_path / "s")):
            if value == 1.0:
                assert float(compute(scenario, out).test_mse[0, -1]) == losses[-1]
                continue
            with pytest.raises(UserError, match=r"Labels_\w{8} may have changed.* --out.*delete"):
                compute(scenario, out)
    assert losses[1] == pytest.approx(4 * losses[0], rel=1e-5)  # from weights of zero


@pytest.mark.slow
def test_another_process_resumes(tmp_path: Path) -> None:
    """What is in a file, until its code changes; comments do not count."""
    for text in (PROGRAM, f"# a comment\n\n{PROGRAM}"):
        (tmp_path / "program.py").write_text(text)
        subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True)
    (tmp_path / "program.py").write_text(PROGRAM.replace("y = ", "y = 2 * "))
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True)
    assert b"otafl.core.errors.UserError" in done.stderr
    assert b"program.py has changed" in done.stderr


PROGRAM = """\
import warnings
import numpy as np
import otafl
from otafl.data import DataSet

x = np.ones((8, 1), "f4")
y = np.ones((8, 1), "f4")

def plain():
    return DataSet(x, y, x, y, classes=1)

tree = {"name": "m", "loss": "squared", "model": "linear", "transport": "ideal"}
training = {"rounds": 1, "local_steps": 1, "eval_every": 1}
tree |= {"devices": {"count": 2}, "training": training, "trials": 1}
warnings.simplefilter("ignore")
otafl.run(tree | {"data": {"name": plain, "partition": "iid"}}, "plain.nc")
"""


def test_stacks_share_what_an_object_returns() -> None:
    """Although it changes a value that it reads."""
    calls = []

    def count() -> DataSet:
        calls.append(1)
        return label(len(calls))

    scenario = describe_labels(count)
    swept = scenario.model_copy(update={"sweep": {"training.local_steps": [1, 2]}})
    otafl.run(swept)
    assert len(calls) == 1


def test_a_sweep_over_objects_runs() -> None:
    factories = [make_factory(3), make_factory(5), {"name": Net, "width": 4}]
    scenario = describe("mlp", sweep={"model": factories})
    result = otafl.run(scenario)
    assert result.sizes["model"] == 3
    assert bool(result.test_loss.notnull().any("round").all())


def test_a_module_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"model: expected a function or class .*lambda"):
        describe(nn.Linear(64, 10))


def test_another_process_is_told_what_is_missing() -> None:
    with pytest.raises(UserError, match=r"'make_0' is an object that another Python process"):
        loading.load("otafl.user_code.sources:make_0", "model.name")


def test_workers_refuse_objects_of_this_process(tmp_path: Path) -> None:
    scenario = describe(make_factory(3), sweep={"training.local_steps": [1, 2]})
    with pytest.raises(UserError, match=r"model.name: workers cannot import .*put it into"):
        otafl.sweep(scenario, tmp_path / "swept", workers=2)
