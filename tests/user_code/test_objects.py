"""Functions and classes that a scenario in Python gives as objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import otafl
from otafl.core.errors import UserError
from otafl.scenario import Scenario, ScenarioError, load_scenario
from otafl.user_code import loading, objects


class Net(nn.Module):
    """Linear, with a width of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(*input_shape, width), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def make_factory(width: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
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
    names = [objects.name_object(make_factory(width)) for width in (3, 4, 3)]
    assert names[0] == names[2] != names[1]
    assert loading.load(names[1], "model.name")()[0].out_features == 4
    parts = [objects.name_object(functools.partial(Net, width=width)) for width in (3, 4)]
    assert parts[0] != parts[1]
    name = objects.name_object(lambda: Net((64,), 10))
    assert name.startswith("otafl.user_code.objects:lambda_")


def test_values_known_by_their_address_get_numbers() -> None:
    class Unnamed:
        pass

    def keep(value: object) -> Callable[[], object]:
        return lambda: value

    first, second = (objects.name_object(keep(Unnamed())) for _ in range(2))
    assert second == f"{first}_2"


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
        loading.load("otafl.user_code.objects:make_0", "model.name")


def test_workers_refuse_objects_of_this_process(tmp_path: Path) -> None:
    scenario = describe(make_factory(3), sweep={"training.local_steps": [1, 2]})
    with pytest.raises(UserError, match=r"model.name: workers cannot import .*put it into"):
        otafl.sweep(scenario, tmp_path / "swept", workers=2)
