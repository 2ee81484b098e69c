"""Flower's side of the experiment of docs/coming_from.md runs and ends where the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from golden.test_coming_from import block, said
from support.pages import DOCS

pytest.importorskip("flwr")

from flwr.serverapp import ServerApp

pytestmark = pytest.mark.slow


def test_flowers_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from interop.test_flower import Direct

    (tmp_path / "client_app.py").write_text(block("client_app.py", DOCS / "flower.md"))
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(compile(block("flower_side.py"), "flower_side.py", "exec"), names)
    assert isinstance(names["app"], ServerApp)
    import client_app

    names["main"](Direct(client_app.app), None)
    accuracy = float(capsys.readouterr().out.split()[-1])
    low, high = said(r"Flower ([\d.]+) to ([\d.]+) over")
    assert low - 0.02 < accuracy < high + 0.02
    sys.modules.pop("client_app")
