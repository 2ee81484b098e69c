"""Trained models as LiteRT files, run by its interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.trained_bench import make_trained_result
from torch import nn

from otafl.core.errors import UserError
from otafl.exporting import deployment, formats
from otafl.exporting.formats import ModelSource
from otafl.exporting.litert import write_litert
from otafl.models.layer_contract import Sum
from otafl.models.modules import Mean, Mixture

pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

RESNET = {"name": "resnet", "channels": [4, 8], "blocks": [1, 1]}
CASES: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "low rank": ({"algorithm": {"name": "fedrlr", "rank": 2}, "model": "cnn"}, "local", 1),
    "batch norm": ({"algorithm": "fedhm", "model": RESNET | {"norm": "batch"}}, "level1", None),
    "mixture": ({"algorithm": "fedem"}, "personal", 2),
    "cp": ({"algorithm": "tdpfed", "model": {"name": "cnn", "channels": [4, 6]}}, "local", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_and_accuracy_stay(case: str, tmp_path: Path) -> None:
    changes, view, device = CASES[case]
    chosen = deployment.open_models(make_trained_result(tmp_path, **changes), {}, 1, view, device)
    made = deployment.export(chosen, "litert", tmp_path / "model.tflite")
    assert made.fault is None
    assert made.accuracies["LiteRT"] == pytest.approx(made.accuracies["PyTorch"], abs=0.02)
    assert made.file_bytes == made.path.stat().st_size


def random(module: nn.Module) -> nn.Module:
    """Every parameter and statistic drawn."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=generator) - 0.5)
                if name.endswith("running_var"):
                    value.abs_()
    return module.eval()


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Flatten(), nn.Linear(6, 4, bias=False)), (2, 3)),
    "stride and padding": (nn.Conv2d(3, 4, (3, 2), (2, 1), (1, 2)), (3, 7, 6)),
    "of each channel": (nn.Conv2d(4, 4, (1, 3), (1, 2), (0, 1), groups=4), (4, 5, 8)),
    "batch norm": (nn.BatchNorm2d(5, eps=0.1), (5, 3, 2)),
    "group norm": (nn.GroupNorm(2, 6, eps=0.1), (6, 3, 2)),
    "leaky": (nn.LeakyReLU(0.2), (5,)),
    "pooling": (nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), (3, 7, 5)),
    "mean": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (3, 4, 5)),
    "image": (nn.Sequential(nn.Unflatten(1, (2, 3, 4)), nn.Conv2d(2, 3, 2), nn.Flatten()), (24,)),
    "sum": (Sum(nn.Linear(4, 4), nn.Sequential()), (4,)),
    "average": (Mean([nn.Linear(4, 3), nn.Linear(4, 3)]), (4,)),
    "mixture": (
        Mixture([nn.Linear(4, 3), nn.Linear(4, 3)], torch.tensor([0.3, 0.7]).log()),
        (4,),
    ),
    "mean of values": (
        Mixture([nn.Linear(4, 3), nn.Linear(4, 3)], torch.tensor([0.3, 0.7]).log(), True),
        (4,),
    ),
    "others": (nn.Sequential(nn.Tanh(), nn.Dropout(), nn.Identity(), nn.Sigmoid()), (4,)),
}


def test_layers_give_what_they_give_in_pytorch(tmp_path: Path) -> None:
    """Images come back with their channels last."""
    wrong = []
    for name, (module, shape) in LAYERS.items():
        module = random(module)
        run = write_litert(ModelSource(module, shape), tmp_path / "layer.tflite")
        x = np.random.default_rng(7).standard_normal((7, *shape), dtype=np.float32)
        wanted = formats.make_run_fn(module)(x)
        if wanted.ndim == 4:
            wanted = wanted.transpose(0, 2, 3, 1)
        found = run(x)
        if not np.allclose(found, wanted, rtol=1e-4, atol=1e-5):
            wrong.append(name)
    assert wrong == []


def test_what_has_no_translation_is_named(tmp_path: Path) -> None:
    for module, shape, match in [
        (nn.Sequential(nn.Softplus()), (4,), "Softplus"),
        (nn.Conv2d(4, 4, 3, groups=2), (4, 5, 5), "groups=2"),
        (nn.Conv2d(4, 4, 3, dilation=2), (4, 9, 9), "dilation"),
        (nn.MaxPool2d(2, padding=1), (4, 9, 9), "padding=1"),
        (nn.AdaptiveAvgPool2d(2), (4, 9, 9), "AdaptiveAvgPool2d"),
    ]:
        with pytest.raises(UserError, match=f"^--to litert: no translation of .*{match}"):
            write_litert(ModelSource(module, shape), tmp_path / "m.tflite")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UserError, match=r"tensorflow .*; run pip install 'otafl\[tensorflow\]'"):
        write_litert(ModelSource(nn.ReLU(), (4,)), tmp_path / "m.tflite")
