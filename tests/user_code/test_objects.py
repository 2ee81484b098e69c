"""Functions and classes that a scenario in Python gives as objects."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
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


def test_other_objects_are_named_by_code_and_values() -> None:
    names = [sources.name_object(make_factory(width)) for width in (3, 4, 3)]
    assert names[0] == names[2] != names[1]
    assert loading.load(names[1], "model.name")((64,), 10)[0].out_features == 4
    parts = [sources.name_object(functools.partial(Net, width=width)) for width in (3, 4)]
    assert parts[0] != parts[1]
    name = sources.name_object(lambda: Net((64,), 10))
    assert name.startswith("otafl.user_code.sources:lambda_")


def test_values_known_by_their_address_get_numbers() -> None:
    class Unnamed:
        pass

    def keep(value: object) -> Callable[[], object]:
        return lambda: value

    first, second = (sources.name_object(keep(Unnamed())) for _ in range(2))
    assert second == f"{first}_2"


VALUE = 1.0


class Labels:
    """Source of a data set whose labels are all one value."""

    def __init__(self, value: float) -> None:
        self.own = value
        self.lock = threading.Lock()  # a value without content

    def __call__(self) -> DataSet:
        return label(self.own)


def label(value: float) -> DataSet:
    x, y = np.ones((8, 1), "f4"), np.full((8, 1), value, "f4")
    return DataSet(x, y, x, y, classes=1)


def read_value() -> float:
    return VALUE


def read_helper() -> DataSet:
    return label(read_value())


def close_over(values: np.ndarray) -> Callable[[], DataSet]:
    return lambda: label(values[2500])


LABELS = Labels(1.0)


def change_global(value: float, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sys.modules[__name__], "VALUE", value)
    return lambda: label(VALUE)


def change_helper_global(value: float, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sys.modules[__name__], "VALUE", value)
    return read_helper


def change_array(value: float, patch: pytest.MonkeyPatch) -> Any:
    values = np.zeros(5000)  # the text of such an array leaves out its middle
    values[2500] = value
    return close_over(values)


def change_tensor(value: float, patch: pytest.MonkeyPatch) -> Any:
    layer = nn.Linear(50, 100)
    nn.init.constant_(layer.weight, value)
    return lambda: label(layer.weight[50, 25].item())


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
    found, recorded = [], []
    for value in (1.0, 2.0, -1.0, 1.0):
        scenario = describe_labels(change(value, monkeypatch))
        found.append(float(load_cached(scenario.data).y_train.mean()))
        recorded.append((scenario.data.name, hash_custom_sources(scenario)))
    assert found == [1.0, 2.0, -1.0, 1.0]
    assert recorded[0][1] != recorded[1][1] != recorded[2][1]
    assert change is change_tensor or recorded[0] == recorded[3]  # its bias is drawn anew


def test_an_object_that_changes_between_two_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same loaded scenario runs what the object is now, and finished results stay."""
    change = change_helper_global
    scenario, losses = describe_labels(change(1.0, monkeypatch)), []
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


def test_a_text_names_the_object_that_a_file_was_computed_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a process that was not given the object, as on the command line."""
    otafl.run(describe_labels(read_helper), tmp_path / "r.nc")
    for value in (1.0, 2.0):
        monkeypatch.setattr(sources, "_recorded", set())
        monkeypatch.setattr(sys.modules[__name__], "VALUE", value)
        scenario = describe_labels(f"{__name__}:read_helper")
        if value == 1.0:
            otafl.run(scenario, tmp_path / "r.nc")
            continue
        with pytest.raises(UserError, match="read_helper or a value that it uses has changed"):
            otafl.run(scenario, tmp_path / "r.nc")


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

tree = {"name": "m", "loss": "squared", "model": "linear", "transport": "ideal"}
training = {"rounds": 1, "local_steps": 1, "eval_every": 1}
tree |= {"devices": {"count": 2}, "training": training, "trials": 1}
warnings.simplefilter("ignore")
for number, make in enumerate((plain, lambda: plain())):
    otafl.run(tree | {"data": {"name": make, "partition": "iid"}}, f"{number}.nc")
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
