"""Trained models kept with a result, and loaded as plain PyTorch modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.marks import first_is_fast
from support.trained_bench import BASE, make_trained_result
from torch import nn

import otafl
from otafl.core import checksums
from otafl.core.contracts import Tensors, View
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.evaluation import PREFIX
from otafl.evaluation.trained_models import collect
from otafl.exporting import deployment
from otafl.exporting.formats import Scored, find_difference, make_run_fn, score_samples
from otafl.models import LayeredModel
from otafl.results import models as trained
from otafl.results.dataset import to_dataset
from otafl.results.end_values import select_final
from otafl.results.files import write_part
from otafl.running.stack_run import run_stack
from otafl.scenario import expand, load_scenario

pytestmark = pytest.mark.exact

RESNET = {"name": "resnet", "channels": [4, 8], "blocks": [1, 1]}
SMALL = {"name": "cnn", "channels": [4, 6], "kernel": 3, "hidden": [16]}
TRANSFORMER = {"name": "transformer", "patch": 4, "depth": 1, "width": 8, "heads": 2}
PAPER = {"q": 2.0, "inv_k_gradient": True}
OWN = {"data": {"name": "digits", "test": "per_device"}}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "fedrlr cnn": (
        {"algorithm": {"name": "fedrlr", "rank": 3} | PAPER, "model": SMALL},
        ["global", "local"],
    ),
    "fedhm batch": (
        {"algorithm": "fedhm", "model": RESNET | {"norm": "batch"}},
        ["global", "level1"],
    ),
    "pfedbred": ({"algorithm": "pfedbred"} | OWN, ["global", "personal", "local"]),
    "per_fedavg": ({"algorithm": {"name": "per_fedavg", "fine_tune_steps": 3}}, ["personal"]),
    "transformer": ({"model": TRANSFORMER, "engine": {"dtype": "float64"}}, ["global"]),
    "split_mix": (
        {"algorithm": "split_mix", "model": {"name": "conv_net", "channels": [8, 8]}},
        ["global", "level3"],
    ),
    "fedem": ({"algorithm": {"name": "fedem", "learning_rate": 1.0}}, ["global", "personal"]),
    "tdpfed": ({"algorithm": "tdpfed", "model": SMALL} | OWN, ["global", "local", "personal"]),
}


def read_accuracy(chosen: deployment.SelectedModel) -> float:
    """The model's accuracy at the end of its trial, as the result has it."""
    result, name = chosen.result, chosen.name
    if name.startswith("level"):
        return float(select_final(result, "level_test_accuracy").isel(level=int(name[5:])))
    if chosen.device is None:
        return float(select_final(result, f"{PREFIX[name]}test_accuracy"))
    names = [f"device_{PREFIX[name]}{own}test_accuracy" for own in ("own_", "")]
    found = next(one for one in names if one in result)
    return float(select_final(result, found).isel(device=chosen.device))


def check_accuracy(chosen: deployment.SelectedModel, module: nn.Module) -> float:
    """Compare the module's accuracy, which is returned, with the one in the result, up to samples
    whose two best scores rounding may exchange."""
    x, y = deployment.load_samples(chosen)
    x = x.astype(str(next(module.parameters()).dtype).removeprefix("torch."))
    scored = score_samples(make_run_fn(module), x, y)
    assert scored.accuracy == pytest.approx(read_accuracy(chosen), abs=0.01)
    return scored.accuracy


@pytest.mark.parametrize("case", first_is_fast(CASES, 2))
def test_it_is_as_accurate_as_the_result_says(case: str, tmp_path: Path) -> None:
    changes, views = CASES[case]
    path = make_trained_result(tmp_path, **changes)
    seen = set()
    for name in views:
        device = None if name == "global" or name.startswith("level") else 2
        chosen = deployment.open_models(path, {}, 1, name, device)
        module = chosen.build_module()
        assert not module.training
        assert (next(module.parameters()).dtype == torch.float64) == (case == "transformer")
        seen.add(round(check_accuracy(chosen, module), 6))
    if len(views) > 1 and "level1" not in views:
        assert len(seen) > 1, "trained enough to tell models apart"


def test_a_state_dict_is_of_the_parameters_alone(tmp_path: Path) -> None:
    """Nothing of the flat block that they were cut from is saved with it; they can be trained."""
    path = make_trained_result(tmp_path)
    before = torch.random.get_rng_state()
    module = otafl.load_model(path)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, value in module.state_dict().items():
        assert value.untyped_storage().nbytes() == value.numel() * 4, name
    module(torch.ones(2, 64)).sum().backward()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    plain.load_state_dict(dict(zip(plain.state_dict(), module.state_dict().values(), strict=True)))
    x = torch.rand(5, 64)
    torch.testing.assert_close(plain(x), module(x))


SWEPT = {
    "algorithm": {"name": "fedrep"},
    "sweep": {"algorithm.learning_rate": [0.1, 0.5], "seed": [3, 4]},
}


def test_a_point_of_a_sweep(tmp_path: Path) -> None:
    path = make_trained_result(tmp_path, **SWEPT)
    assert otafl.load_model(path, "personal", 0, seed=4, learning_rate=0.1) is not None
    for point, (rate, seed) in enumerate([(0.1, 3), (0.1, 4), (0.5, 3), (0.5, 4)]):
        sel = {"learning_rate": str(rate), "seed": str(seed)}
        chosen = deployment.open_models(path, sel, 0, "personal", 2)
        assert chosen.index == point
        check_accuracy(chosen, chosen.build_module())
    with pytest.raises(UserError, match=r"also depend on seed.*--sel seed=3"):
        otafl.load_model(path, "personal", 0, learning_rate=0.1)


def test_scores_differ_by_rounding_only() -> None:
    before = Scored(np.eye(3), 1.0)
    assert find_difference(before, Scored(np.eye(3) + 1e-5, 1.0)) is None
    assert "scores differ by 0.1, of at most 1" in str(
        find_difference(before, Scored(np.eye(3) + 0.1, 1.0))
    )


class TestRefused:
    def test_without_models(self, tmp_path: Path) -> None:
        scenario = load_scenario(BASE | {"output": {}})
        points = expand(scenario)
        write_part(to_dataset(run_stack(points), points, scenario), tmp_path / "bare.nc")
        with pytest.raises(UserError, match=r"bare\.nc: no trained models.*output\.save_models"):
            otafl.load_model(tmp_path / "bare.nc")

    def test_no_such_view_device_or_trial(self, tmp_path: Path) -> None:
        path = make_trained_result(tmp_path, algorithm={"name": "fedrlr", "rank": 2})
        for match, view, device, trial in [
            (r"view gobal.*did you mean 'global'.*known: global, local", "gobal", None, 0),
            ("device 1: the global model belongs to no device", "global", 1, 0),
            ("view local: each device has one; choose a device from 0 to 2", "local", None, 0),
            ("view local: no device 3; choose a device from 0 to 2", "local", 3, 0),
            (r"trial 2: no models of it; there are trials \[0, 1\]", "global", None, 2),
        ]:
            with pytest.raises(UserError, match=match):
                otafl.load_model(path, view, device, trial)

    def test_a_method_that_predicts_in_a_way_of_its_own(self) -> None:
        """Noticed by its scores, whatever its parameters look like."""
        points = expand(load_scenario(BASE))
        engine = Engine(assemble(points, [0, 1]))
        model, views = engine.parts.model, engine.parts.algorithm.build_views
        assert isinstance(model, LayeredModel)

        def other(server: Tensors, devices: Tensors) -> dict[str, View]:
            view = views(server, devices)["global"]
            return {"global": replace(view, predict_fn=lambda p, x: -view.predict_fn(p, x))}

        object.__setattr__(engine.parts.algorithm, "build_views", other)
        one = collect(engine, points, [0, 1], 0).views["global"]
        assert "no plain PyTorch module" in str(one.recipe["refused"])

    def test_other_and_damaged_files(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        path, other = make_trained_result(tmp_path), make_trained_result(tmp_path / "a", seed=5)
        (file,), (wrong,) = trained.list_model_files(path), trained.list_model_files(other)
        content = file.read_bytes()
        file.write_bytes(wrong.read_bytes())
        with pytest.raises(UserError, match=r"0{16}\.pt: is damaged"):
            otafl.load_model(path)
        checksums.forget(file)
        with pytest.raises(UserError, match="belongs to another scenario"):
            otafl.load_model(path)
        file.write_bytes(content[: len(content) // 2])
        with pytest.raises(UserError, match=r"0{16}\.pt: is damaged"):
            otafl.load_model(path)
