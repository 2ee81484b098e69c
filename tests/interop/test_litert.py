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
from otafl.exporting import deployment
from otafl.exporting.formats import ModelSource, make_run_fn, write_litert
from otafl.models.layer_contract import Sum
from otafl.models.modules import Mean, Mixture

pytest.importorskip("litert_torch")

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


def test_layers_give_what_they_give_in_pytorch(tmp_path: Path) -> None:
    """Those that no library has, and a depthwise convolution."""
    wrong, parts = [], [nn.Linear(4, 3), nn.Linear(4, 3)]
    weights = torch.tensor([0.3, 0.7]).log()
    for name, module in {
        "sum": Sum(nn.Linear(4, 4), nn.Sequential()),
        "mean": Mean(parts),
        "mixture": Mixture(parts, weights),
        "mean of values": Mixture(parts, weights, True),
        "factors": nn.Sequential(
            nn.Unflatten(1, (4, 1, 1)), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Flatten()
        ),
    }.items():
        run = write_litert(ModelSource(module.eval(), (4,)), tmp_path / "layer.tflite")
        x = np.random.default_rng(7).standard_normal((7, 4), dtype=np.float32)
        if not np.allclose(run(x), make_run_fn(module)(x), rtol=1e-4, atol=1e-5):
            wrong.append(name)
    assert wrong == []


class Values(nn.Module):
    """A layer that the converter has not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = torch.linalg.svdvals(x.view(-1, 2, 2))
        return values


def test_what_has_no_translation_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--to litert: LiteRT cannot convert this model: .*svd"):
        write_litert(ModelSource(Values().eval(), (4,)), tmp_path / "m.tflite")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litert_torch", None)
    with pytest.raises(UserError, match=r"litert_torch .*; run pip install 'otafl\[litert\]'"):
        write_litert(ModelSource(nn.ReLU(), (4,)), tmp_path / "m.tflite")
