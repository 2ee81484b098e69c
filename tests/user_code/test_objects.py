"""Functions and classes that a scenario in Python gives as objects."""

from __future__ import annotations

import functools
import os
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
from otafl.data import DataSet, load_cached
from otafl.scenario import Scenario, ScenarioError, hash_custom_sources, load_scenario
from otafl.user_code import loading


class Net(nn.Module):
    """Linear, with a width of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(*input_shape, width), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def describe(model: Any, **keys: Any) -> Scenario:
    tree = {"name": "given", "data": "digits", "model": model, **keys}
    training = {"rounds": 1, "local_steps": 1, "eval_every": 1, "eval_samples": 20}
    return load_scenario(tree | {"devices": {"count": 2}, "training": training, "trials": 1})


def test_an_object_of_a_module_has_its_name() -> None:
    assert describe({"name": Net, "width": 4}).model.name == f"{__name__}:Net"
    assert describe(Net).model.name == describe(f"{__name__}:Net").model.name


VALUE = 1.0
VALUES = np.zeros(5000)
LAYER = nn.Linear(50, 100)


def label(value: float) -> DataSet:
    x, y = np.ones((8, 1), "f4"), np.full((8, 1), value, "f4")
    return DataSet(x, y, x, y, classes=1)


def read_value() -> float:
    return VALUE


def read_helper() -> DataSet:
    return label(read_value())


def read_array() -> DataSet:
    return label(VALUES[2500])


def read_weight() -> DataSet:
    return label(LAYER.weight[50, 25].item())


def change_helper_global(value: float, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sys.modules[__name__], "VALUE", value)
    return read_helper


def change_array(value: float, patch: pytest.MonkeyPatch) -> Any:
    VALUES[2500] = value  # the text of such an array leaves out its middle
    return read_array


def change_tensor(value: float, patch: pytest.MonkeyPatch) -> Any:
    nn.init.constant_(LAYER.weight, value)
    return read_weight


CHANGES = [change for name, change in list(globals().items()) if name.startswith("change_")]


def describe_labels(make: Callable[[], DataSet], patch: pytest.MonkeyPatch) -> Scenario:
    """A scenario whose data set is a function of the program itself."""
    patch.setattr(sys.modules["__main__"], make.__name__, make, raising=False)
    data = {"name": f"__main__:{make.__name__}", "partition": "iid"}
    tree = {"name": "labels", "data": data, "model": "linear"}
    training = {"rounds": 1, "local_steps": 1, "eval_every": 1}
    rest = {"loss": "squared", "transport": "ideal", "devices": {"count": 2}, "trials": 1}
    return load_scenario(tree | rest | {"training": training})


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_object_given_now_is_the_one_that_runs(
    change: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, recorded = [], []
    for value in (1.0, 2.0, -1.0, 1.0):
        scenario = describe_labels(change(value, monkeypatch), monkeypatch)
        found.append(float(load_cached(scenario.data).y_train.mean()))
        recorded.append((scenario.data.name, hash_custom_sources(scenario)))
    assert found == [1.0, 2.0, -1.0, 1.0]
    assert recorded[0][1] != recorded[1][1] != recorded[2][1]
    assert recorded[0] == recorded[3]


def test_an_object_that_changes_between_two_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same loaded scenario runs what the object is now, and finished results stay."""
    change = change_helper_global
    scenario, losses = describe_labels(change(1.0, monkeypatch), monkeypatch), []
    for value in (1.0, 1.0, 2.0):
        change(value, monkeypatch)
        losses.append(float(otafl.run(scenario).test_mse[0, -1]))
        for compute, out in ((otafl.run, tmp_path / "r.nc"), (otafl.sweep, tmp_path / "s")):
            if value == 1.0:
                assert float(compute(scenario, out).test_mse[0, -1]) == losses[-1]
                continue
            with pytest.raises(UserError, match=r"changed since .*undo.* --out.*delete"):
                compute(scenario, out)
    assert losses[0] == losses[1]
    assert losses[2] == pytest.approx(4 * losses[0], rel=1e-5)  # from weights of zero


@pytest.mark.slow
def test_another_process_resumes(tmp_path: Path) -> None:
    """Its sets have another order, and its objects lie elsewhere in memory."""
    (tmp_path / "program.py").write_text(PROGRAM)
    for seed, text in (("1", PROGRAM), ("2", f"# a comment\n\n{PROGRAM}\nprint('drawn')\n")):
        (tmp_path / "program.py").write_text(text)
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True)
    program = PROGRAM.replace("y = ", "y = 2 * ")
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True)
    assert b"otafl.core.errors.UserError" in done.stderr
    assert b"__main__:plain" in done.stderr


PROGRAM = """\
import warnings
import numpy as np
import otafl
from otafl.data import DataSet

x = np.ones((8, 1), "f4")
y = np.ones((8, 1), "f4")
kinds = {"some", "words", "in", "a", "set"}

def plain():
    "Return data."
    return DataSet(x, y, x, y, classes=len(kinds) and 1)

def other():
    return plain()

tree = {"name": "m", "loss": "squared", "model": "linear", "transport": "ideal"}
training = {"rounds": 1, "local_steps": 1, "eval_every": 1}
tree |= {"devices": {"count": 2}, "training": training, "trials": 1}
warnings.simplefilter("ignore")
for number, make in enumerate((plain, other)):
    otafl.run(tree | {"data": {"name": make, "partition": "iid"}}, f"{number}.nc")
"""


CALLS: list[int] = []


def count_calls() -> DataSet:
    CALLS.append(1)
    return label(len(CALLS))


def test_stacks_share_what_an_object_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it changes a value that it reads."""
    scenario = describe_labels(count_calls, monkeypatch)
    swept = scenario.model_copy(update={"sweep": {"training.local_steps": [1, 2]}})
    otafl.run(swept)
    assert len(CALLS) == 1


def test_a_sweep_over_objects_runs() -> None:
    factories = ["linear", Net, {"name": Net, "width": 4}]
    scenario = describe("mlp", sweep={"model": factories})
    result = otafl.run(scenario)
    assert result.sizes["model"] == 3
    assert bool(result.test_loss.notnull().any("round").all())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (nn.Linear(64, 10), "expected a function or class .* write a function that returns it"),
        (lambda: nn.Linear(64, 10), "<lambda> is no function or class at the top level"),
        (functools.partial(Net, width=4), "partial is no function .* give its values as keys"),
    ],
)
def test_other_objects_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=f"^model: {said}"):
        describe(given)


def test_another_process_is_told_what_is_missing() -> None:
    with pytest.raises(UserError, match=r"'make' is an object that another Python process"):
        loading.load("__main__:make", "model.name")


def test_workers_refuse_objects_of_this_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Net", Net, raising=False)
    scenario = describe("__main__:Net", sweep={"training.local_steps": [1, 2]})
    with pytest.raises(UserError, match=r"model.name: workers cannot import .*put it into"):
        otafl.sweep(scenario, tmp_path / "swept", workers=2)
