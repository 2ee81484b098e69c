"""A transformer is written as safetensors, ONNX and a PyTorch program, and starts from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from contract.small import engine
from support.trained_bench import make_trained_result
from torch import nn

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.exporting import deployment

pytestmark = pytest.mark.exact

MODEL = {"name": "transformer", "patch": 4, "depth": 1, "width": 8, "heads": 2}
TARGETS = {"safetensors": ".safetensors", "pytorch": ".pt2", "onnx": ".onnx"}


@pytest.mark.slow
def test_a_transformer_leaves_and_begins_again(tmp_path: Path) -> None:
    path = make_trained_result(tmp_path, model=MODEL, algorithm="fedavg")
    selected = deployment.open_models(path, {}, 0, "global", None)
    for target, suffix in TARGETS.items():
        if target == "onnx":
            pytest.importorskip("onnxruntime")
        made = deployment.export(selected, target, tmp_path / f"model{suffix}")
        assert made.fault is None
    file = tmp_path / "model.safetensors"
    start: dict[str, Any] = {"name": "file", "path": str(file)}
    again = engine({"model": MODEL | {"start": start}})
    weights = safetensors.read(file)
    flat = torch.cat([weights[name].flatten() for name in again.parts.model.shapes])
    assert torch.equal(again.server["model"], flat.expand(3, -1))
    params = selected.view.get_params(selected.row, 0)
    assert torch.equal(params["model"], flat)


def frozen_net(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    module = nn.Sequential(nn.Linear(64, 3), nn.Tanh(), nn.Linear(3, 10))
    module[0].requires_grad_(False)
    return module


def test_frozen_parameters_are_in_the_file(tmp_path: Path) -> None:
    """A run begins from it if the module has the same frozen values."""
    section = {"name": f"{__name__}:frozen_net"}
    path = make_trained_result(tmp_path, model=section, algorithm="fedavg")
    file = tmp_path / "model.safetensors"
    deployment.export(
        deployment.open_models(path, {}, 0, "global", None, trust=True), "safetensors", file
    )
    weights = safetensors.read(file)
    frozen_net((64,), 10).load_state_dict(weights)  # which has all of them
    begins = {"model": section | {"start": {"name": "file", "path": str(file)}}}
    flat = torch.cat([weights["2.weight"].flatten(), weights["2.bias"]])
    assert torch.equal(engine(begins).server["model"], flat.expand(3, -1))
    safetensors.write(weights | {"0.bias": weights["0.bias"] + 1.0}, file)
    with pytest.raises(UserError, match=r"0\.bias is frozen \(requires_grad=False\)"):
        engine(begins)


def test_factors_are_refused(tmp_path: Path) -> None:
    path = make_trained_result(tmp_path, algorithm={"name": "fedrlr", "rank": 3})
    selected = deployment.open_models(path, {}, 0, "global", None)
    with pytest.raises(UserError, match="--to safetensors: the model has factors; use --to"):
        deployment.export(selected, "safetensors", tmp_path / "model.safetensors")
