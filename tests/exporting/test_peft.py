"""Adapters alone in PEFT's layout, and merged weights as safetensors; PEFT is the oracle of both
loading and merging, where it is installed (the extra peft).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.marks import first_is_fast
from support.trained_bench import make_trained_result
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import otafl
from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.exporting import deployment
from otafl.exporting.formats import ModelSource, make_run_fn, score_samples, write_peft
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact

TRANSFORMER = {"name": "transformer", "patch": 4, "depth": 2, "width": 8, "heads": 2}
CNN = {"name": "cnn", "channels": [4, 6], "kernel": 3, "hidden": [16]}
LORA = {"name": "lora", "rank": 2, "learning_rate": 0.5}
CASES: dict[str, dict[str, Any]] = {
    "both": {"algorithm": LORA, "model": TRANSFORMER},
    "convolutions": {"algorithm": LORA | {"alpha": 4.0}, "model": CNN},
    "tangent": {
        "algorithm": LORA | {"mode": "tangent", "learning_rate": 0.1},
        "model": TRANSFORMER,
    },
    "share_a": {
        "algorithm": LORA | {"mode": "share_a"},
        "model": TRANSFORMER,
        "data": {"name": "digits", "test": "per_device"},
    },
}
RANKS = {"tangent": 4}
TRAINING = {"rounds": 2, "eval_every": 2, "local_steps": 3}


def select(name: str, folder: Path) -> deployment.SelectedModel:
    path = make_trained_result(folder, **{"training": TRAINING} | CASES[name])
    view, device = ("personal", 1) if name == "share_a" else ("global", None)
    return deployment.open_models(path, {}, 1, view, device)


@pytest.mark.parametrize("name", first_is_fast(CASES))
def test_layout_and_scores(name: str, tmp_path: Path) -> None:
    """The files have PEFT's names and shapes, and base and adapters are the model's weights."""
    selected = select(name, tmp_path)
    deployment.export(selected, "peft", tmp_path / "adapters")
    config = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    rank = RANKS.get(name, 2)
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", rank, rank)
    tensors = safetensors.read(tmp_path / "adapters" / "adapter_model.safetensors")
    base = safetensors.read(tmp_path / "adapters" / "base.safetensors")
    wanted = set()
    module = selected.build_module()
    for layer in config["target_modules"]:
        weight, merged = base[f"{layer}.weight"], module.state_dict()[f"{layer}.weight"]
        a, b = (f"base_model.model.{layer}.lora_{part}.weight" for part in "AB")
        assert tensors[a].shape == (rank, *weight.shape[1:])
        assert tensors[b].shape[:2] == (weight.shape[0], rank)
        change = tensors[b].flatten(1) @ tensors[a].flatten(1)
        torch.testing.assert_close(weight + change.view_as(weight), merged)
        assert not torch.equal(weight, merged)
        wanted |= {a, b}
    (head,) = config["modules_to_save"]
    wanted |= {f"base_model.model.{head}.{kind}" for kind in ("weight", "bias")}
    assert tensors.keys() == wanted
    assert base.keys() == module.state_dict().keys()


@pytest.mark.parametrize("name", first_is_fast(CASES))
def test_peft_loads_and_merges(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    selected = select(name, tmp_path)
    deployment.export(selected, "peft", tmp_path / "adapters", check=False)
    wanted = selected.build_module().float()
    base = selected.build_module().float()
    base.load_state_dict(safetensors.read(tmp_path / "adapters" / "base.safetensors"))
    x, y = deployment.load_samples(selected)
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapters"))
    merged = loaded.merge_and_unload()
    assert isinstance(merged, nn.Module)
    expected = score_samples(make_run_fn(wanted), x, y).scores
    found = score_samples(make_run_fn(merged.eval()), x, y).scores
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_forward_pass_is_that_of_peft() -> None:
    """The oracle of y = W_0 x + (alpha / r) B A x, and of the start of A."""
    peft = pytest.importorskip("peft")
    from otafl.algorithms.adapters.adapters import AdaptedWeight

    torch.manual_seed(0)
    layer = nn.Linear(9, 6, bias=False)
    model = nn.Sequential(layer)
    weight = layer.weight.detach().T[None].clone()
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=["0"], lora_dropout=0.0)
    wrapped = peft.get_peft_model(model, config)
    named = dict(wrapped.named_parameters())
    a = next(p for n, p in named.items() if "lora_A" in n)
    b = next(p for n, p in named.items() if "lora_B" in n)
    assert float(a.abs().max()) <= 9**-0.5
    assert float(b.abs().max()) == 0
    with torch.no_grad():
        b.normal_()
        x = torch.randn(4, 9)
        ours = AdaptedWeight(weight, a[None], b[None], 5 / 3).forward(x[None])[0]
        torch.testing.assert_close(ours, wrapped(x))


def test_merged_weights_are_a_start(tmp_path: Path) -> None:
    """Merged weights under the model's names: another run begins from them."""
    selected = select("both", tmp_path)
    deployment.export(selected, "safetensors", tmp_path / "merged.safetensors")
    tensors = safetensors.read(tmp_path / "merged.safetensors")
    params = selected.view.get_params(selected.row, 0)
    assert tensors.keys() == {n for n in params if not n.startswith("base.")}
    start = {"name": "file", "path": str(tmp_path / "merged.safetensors")}
    scenario = load_scenario(
        {"name": "next", "data": "digits", "model": TRANSFORMER | {"start": start}}
    )
    assert scenario.model.start.name == "file"


@pytest.mark.slow
def test_onnx_has_merged_weights(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    made = deployment.export(select("tangent", tmp_path), "onnx", tmp_path / "model.onnx")
    assert made.fault is None


def make_source(layer: nn.Module, change: str) -> ModelSource:
    """A source whose base differs from its model in one parameter."""
    params = {name: one.detach() for name, one in layer.state_dict().items()}

    def build(given: dict[str, torch.Tensor]) -> nn.Module:
        module = copy.deepcopy(layer)
        module.load_state_dict({name: given[name] for name in params})
        return module

    base = {f"base.{change}": params[change] + 1.0}
    return ModelSource(layer, (4,), {**params, **base}, (params,), build)


@pytest.mark.parametrize(
    ("layer", "change", "match"),
    [
        (nn.LayerNorm(4), "1.weight", "change 1.weight of a LayerNorm"),
        (nn.LayerNorm(4), "1.bias", "change 1.bias of a LayerNorm"),
        (nn.Linear(4, 4), "0.bias", "change 0.bias of a Linear"),
        (nn.BatchNorm1d(4), "1.running_mean", "change 1.running_mean of a BatchNorm1d"),
        (
            weight_norm(nn.Linear(4, 4)),
            "1.parametrizations.weight.original0",
            "change 1.para.*original0",
        ),
    ],
)
def test_other_changes_are_refused(
    layer: nn.Module, change: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"^--to peft: the adapters {match}.*; use --to safe"):
        write_peft(make_source(nn.Sequential(nn.Linear(4, 4), layer), change), tmp_path / "a")


def test_tied_weights_are_adapters_of_each(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    source = make_source(module, "0.weight")
    source.params["base.2.weight"] = source.params["base.0.weight"]
    write_peft(source, tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["0", "2"]


def test_refusals(tmp_path: Path) -> None:
    path = make_trained_result(tmp_path, algorithm="fedavg")
    selected = deployment.open_models(path, {}, 1, "global", None)
    with pytest.raises(UserError, match="has no adapters; use a result of algorithm: lora"):
        deployment.export(selected, "peft", tmp_path / "adapters")
    with pytest.raises(UserError, match="a folder, without a suffix"):
        deployment.export(selected, "peft", tmp_path / "adapters.bin")
    assert otafl.load_model(path, trial=1) is not None
