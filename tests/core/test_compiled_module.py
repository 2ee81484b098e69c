"""A module of compiled loops is loaded once it pays, together with others that need Numba.

Mutations that make a test here fail: the time of other modules left out, or enough by itself.
"""

from __future__ import annotations

import time

import pytest
import torch

from otafl.core.compiled_module import CompiledModule

pytestmark = pytest.mark.exact

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledModule, "total_s", 0.0)


def spend(module: CompiledModule, seconds: float, share: float = 1.0) -> None:
    module.count_time(time.thread_time() - seconds, share)


def test_time_of_all_modules_pays_for_numba() -> None:
    """Two modules of 0.3 s each are loaded; one that saves nothing is not."""
    first, second, third = (CompiledModule("math") for _ in range(3))
    spend(first, 0.3)
    assert first.get(CPU) is None
    spend(second, 0.6, share=0.5)
    assert first.get(CPU) is second.get(CPU) is not None
    assert third.get(CPU) is None
    assert first.get(torch.device("meta")) is None
