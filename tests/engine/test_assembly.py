"""Assembly in the caller's modes of torch, which decide nothing about a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from contract.small import engine, equal, run

from otafl.core.errors import UserError

MODULE = {"name": "contract.small:normed", "hidden": [4]}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_mode_of_gradients_changes_a_run(
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    expected = run(engine({"model": MODULE}), 1).server
    with mode():
        equal(run(engine({"model": MODULE}), 1).server, expected)


@pytest.mark.parametrize("model", ["softmax_regression", MODULE])
def test_autocast_is_refused(model: object) -> None:
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(UserError, match=r"^engine\.dtype: torch\.autocast is on"),
    ):
        engine({"model": model})
