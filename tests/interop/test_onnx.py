"""Trained models as ONNX, run by onnxruntime; and `otafl export`, whatever the format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from support.trained_bench import make_trained_result
from torch import nn

from otafl.cli import results
from otafl.core.errors import UserError
from otafl.exporting import deployment
from otafl.models.modules import count_macs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.slow

RESNET = {"name": "resnet", "channels": [4, 8], "blocks": [1, 1], "norm": "batch"}
CASES: list[tuple[dict[str, Any], str, int | None]] = [
    ({"algorithm": {"name": "fedrlr", "rank": 2}, "model": "cnn"}, "local", 1),
    ({"algorithm": "fedhm", "model": RESNET}, "level1", None),
    ({"algorithm": "fedem"}, "personal", 2),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_scores_and_accuracy_stay(case: int, tmp_path: Path) -> None:
    changes, view, device = CASES[case]
    chosen = deployment.open_models(make_trained_result(tmp_path, **changes), {}, 1, view, device)
    made = deployment.export(chosen, "onnx", tmp_path / "model.onnx")
    assert made.fault is None
    before, after = made.accuracies["PyTorch"], made.accuracies["onnxruntime"]
    assert before == pytest.approx(after, abs=0.02)  # `fault` looks at ties
    assert made.file_bytes == made.path.stat().st_size
    model = onnx.load(made.path)
    assert [one.version for one in model.opset_import if not one.domain] == [20]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "the batch is open"
    assert all(not node.metadata_props for node in model.graph.node)


def test_files_and_multiplications_fall_with_the_rank(tmp_path: Path) -> None:
    """The thin layers are not multiplied out: the file is the factors' size, and its matrices are
    those of the factors."""
    wide = {"name": "mlp", "hidden": [64, 64]}
    files, work = [], []
    for rank in (2, 8, None):
        algorithm = "fedavg" if rank is None else {"name": "fedrlr", "rank": rank}
        (tmp_path / str(rank)).mkdir()
        path = make_trained_result(
            tmp_path / str(rank), model=wide, algorithm=algorithm, training={"rounds": 1}, trials=1
        )
        chosen = deployment.open_models(path, {}, 0, "global", None)
        made = deployment.export(chosen, "onnx", tmp_path / f"{rank}.onnx", check=False)
        files.append(made.path.stat().st_size)
        work.append(made.macs)
        reals = sum(np.prod(one.dims) for one in onnx.load(made.path).graph.initializer)
        assert reals == made.parameters
        assert 4 * reals < files[-1] < 4 * reals + 6000
        assert made.accuracies == {}
    assert work == [r * (128 + 128 + 74) for r in (2, 8)] + [64 * 64 * 2 + 640]
    assert files == sorted(files)
    assert files[0] < files[2] / 3


def command(*args: str) -> int:
    """The exit code of `otafl export`, as a program of its own."""
    app = typer.Typer()
    app.command()(results.export)
    with pytest.raises(SystemExit) as ended:
        app(args=list(args))
    return int(ended.value.code or 0)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = make_trained_result(tmp_path, algorithm="pfedbred", sweep={"seed": [0, 1]})
    out = tmp_path / "new" / "model.onnx"
    args = [str(path), "--to", "onnx", "--out", str(out)]
    assert command(*args, "--view", "personal", "--device", "1", "--sel", "seed=1") == 0
    text, noise = capfd.readouterr()
    assert noise == ""
    assert f"{out.stat().st_size:,} bytes, 1,210 parameters, 1,184 multiplications a" in text
    assert "onnxruntime: accuracy 0." in text
    assert command(*args, "--sel", "seed=1", "--no-check") == 0
    assert "accuracy" not in capfd.readouterr().out


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = deployment.open_models(make_trained_result(tmp_path), {}, 0, "global", None)
    with pytest.raises(UserError, match=r"--out .*model\.tflite: must .* ends in \.onnx"):
        deployment.export(chosen, "onnx", tmp_path / "model.tflite")
    for missing in ("onnxscript", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(UserError, match=missing + r" .*; run pip install 'otafl\[onnx\]'"):
                deployment.export(chosen, "onnx", tmp_path / "model.onnx")


def test_a_torch_program(tmp_path: Path) -> None:
    chosen = deployment.open_models(
        make_trained_result(tmp_path, model="cnn"), {}, 0, "global", None
    )
    made = deployment.export(chosen, "pytorch", tmp_path / "model.pt2")
    assert made.fault is None
    program = torch.export.load(made.path).module()
    x = torch.rand(7, 64)
    torch.testing.assert_close(program(x), chosen.build_module()(x))
    assert count_macs(nn.Linear(3, 2), torch.zeros(1, 3)) == 6
