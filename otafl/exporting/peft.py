"""Export of low-rank adapters alone, in the file layout of Hugging Face's PEFT.

A folder has `adapter_config.json` and `adapter_model.safetensors`, which PEFT loads onto a module
with the weights of `base.safetensors`:

    module = otafl.load_model("run.nc")
    module.load_state_dict(safetensors.torch.load_file("adapters/base.safetensors"))
    model = peft.PeftModel.from_pretrained(module, "adapters")

The factors B = U S^(1/2) and A = S^(1/2) V^T are those of the singular value decomposition of what
the adapters add to a weight. So they are the same whatever mode has trained them, and alpha = r.

References
----------
Hugging Face 2023, "PEFT", https://huggingface.co/docs/peft, section "PEFT checkpoint format".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.exporting.measure import Run, Source, make_run_fn
from otafl.factorised.decomposition import svd
from otafl.models.modules import BASE, build_module

CONFIG, ADAPTERS, BASE_FILE = "adapter_config.json", "adapter_model.safetensors", "base.safetensors"
PREFIX = "base_model.model."
"""Beginning of the names in PEFT's files."""

RANK_TOLERANCE = 1e-5
"""Singular values below this share of the largest are rounding."""

Parts = dict[str, tuple[Tensor, Tensor]]
"""Name of a layer -> its A [r, in] and B [out, r], or those of a convolution."""


def write_peft(source: Source, path: Path, quantise: str | None = None) -> Run:
    """Write adapters and their base to a folder, which is created.

    The parameters have the weights "base.NAME" before the adapters were merged. Raises UserError if
    the model has no adapters.
    """
    recipe, params = source.recipe, source.params
    before = {name.removeprefix(BASE): b for name, b in params.items() if name.startswith(BASE)}
    if not before:
        raise UserError(
            "--to peft: the model has no adapters; use a result of algorithm: lora, or another "
            "format"
        )
    merged = build_module(recipe, params).float()
    base = build_module(recipe, {**params, **before}).float()
    parts = _find_adapters(merged, base)
    rank = max(a.shape[0] for a, _ in parts.values())
    tensors: dict[str, Tensor] = {}
    for name, (a, b) in parts.items():
        tensors[f"{PREFIX}{name}.lora_A.weight"] = _pad(a, 0, rank)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = _pad(b, 1, rank)
    head = _find_head(merged)
    if head in parts:
        head = None
    for name, block in merged.state_dict().items():
        if head is not None and name.rpartition(".")[0] == head:
            tensors[f"{PREFIX}{name}"] = block
    path.mkdir(parents=True, exist_ok=True)
    safetensors.write(tensors, path / ADAPTERS)
    safetensors.write(dict(base.state_dict()), path / BASE_FILE)
    config = _make_config(list(parts), head, rank)
    with write_atomically(path / CONFIG) as temporary:
        temporary.write_text(json.dumps(config, indent=2) + "\n")
    return _make_runner(base, path)


def _make_runner(module: nn.Module, path: Path) -> Run:
    """Return what runs a module with the base and the adapters of a folder."""
    state = safetensors.read(path / BASE_FILE)
    tensors = safetensors.read(path / ADAPTERS)
    config = json.loads((path / CONFIG).read_text())
    scale = config["lora_alpha"] / config["r"]
    for name in config["target_modules"]:
        a, b = (tensors[f"{PREFIX}{name}.lora_{part}.weight"] for part in "AB")
        change = (b.flatten(1) @ a.flatten(1)).view_as(state[f"{name}.weight"])
        state[f"{name}.weight"] = state[f"{name}.weight"] + scale * change
    for name, block in tensors.items():
        if "lora_" not in name:
            state[name.removeprefix(PREFIX)] = block
    module.load_state_dict(state)
    return make_run_fn(module)


def _find_adapters(merged: nn.Module, base: nn.Module) -> Parts:
    """Factorise what was added to the weights of layers."""
    parts: Parts = {}
    before = base.state_dict()
    layers = dict(merged.named_modules())
    for name, block in merged.state_dict().items():
        layer, _, kind = name.rpartition(".")
        change = block - before[name]
        if kind != "weight" or not bool(change.any()):
            continue
        if not isinstance(layers[layer], nn.Linear | nn.Conv2d) or block.dim() not in (2, 4):
            raise UserError(
                f"--to peft: the layer {layer} is a {type(layers[layer]).__name__}, and adapters "
                "are exported of Linear and Conv2d; use --to safetensors"
            )
        parts[layer] = _factorise(change)
    if not parts:
        raise UserError("--to peft: the adapters are zero, as before the first round; train them")
    return parts


def _factorise(change: Tensor) -> tuple[Tensor, Tensor]:
    """Factorise a change [out, in] or [out, in, k, k] into A and B of the smallest rank."""
    u, s, vt = (one[0] for one in svd(change.flatten(1).double()[None], full_matrices=False))
    rank = max(1, int((s > RANK_TOLERANCE * s[0]).sum()))
    root = s[:rank].sqrt()
    a, b = (root[:, None] * vt[:rank]).float(), (u[:, :rank] * root).float()
    if change.dim() == 4:
        return a.view(rank, *change.shape[1:]).contiguous(), b[:, :, None, None].contiguous()
    return a.contiguous(), b.contiguous()


def _pad(block: Tensor, side: int, rank: int) -> Tensor:
    """Pad a factor with zeros to a rank along a dimension."""
    shape = list(block.shape)
    shape[side] = rank - shape[side]
    return torch.cat([block, block.new_zeros(shape)], side).contiguous()


def _find_head(module: nn.Module) -> str | None:
    """Find the last layer with a weight."""
    names = [name for name, one in module.named_modules() if hasattr(one, "weight")]
    return names[-1] if names else None


def _make_config(targets: list[str], head: str | None, rank: int) -> dict[str, Any]:
    """Make the configuration of adapters whose scale is 1."""
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": targets,
        "modules_to_save": None if head is None else [head],
    }
