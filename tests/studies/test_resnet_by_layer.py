"""Parameters and operations of ResNets by stage are those of the FedHM paper's Fig. 7."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(SCRIPTS)
    return runpy.run_path(str(SCRIPTS / "resnet_by_layer.py"))


def test_stages_are_those_of_the_paper(script: dict[str, Any]) -> None:
    """To the last printed digit: three decimals of parameters, one of operations."""
    for title, network in script["NETWORKS"].items():
        params, operations = script["count_by_stage"](*network)
        printed_params, printed_operations = script["PAPER"][title]
        np.testing.assert_allclose(params, printed_params, atol=5.01e-4)
        np.testing.assert_allclose(operations[:-1], printed_operations[:-1], atol=0.0501)


def test_the_figure_is_drawn(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["resnet_by_layer.py", "--out", str(tmp_path / "figure.png")])
    script["main"]()
    assert (tmp_path / "figure.png").stat().st_size > 10_000
