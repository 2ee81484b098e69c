"""Assembly in the caller's modes of torch, which decide nothing about a run."""

from __future__ import annotations

import pytest
import torch
from contract.small import engine, equal, run

from otafl.core.errors import UserError

MODULE = {"name": "contract.small:normed", "hidden": [4]}


def test_inference_mode_changes_no_run() -> None:
    expected = run(engine({"model": MODULE}), 1).server
    with torch.inference_mode():
        equal(run(engine({"model": MODULE}), 1).server, expected)


def test_autocast_is_refused() -> None:
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(UserError, match=r"^engine\.dtype: torch\.autocast is on"),
    ):
        engine({})
