"""Every component computes on a GPU what it computes on the CPU.

Two rounds in double precision, since random draws are the same integers on both; what predictions
differ by then is rounding. The same comparison runs on a pretended GPU, which refuses what a GPU
would refuse.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from contract.small import close, engine, run, scores
from gpu.cases import CASES, QUICK
from support.pretended import use_processor

from otafl.core.contracts import Tensors
from otafl.engine.engine import Engine

ROUNDS = 2


def made(case: str, device: str, **keys: Any) -> Engine:
    """The engine of a case in double precision."""
    precise = {"engine.dtype": "float64", "engine.device": device}
    return engine({**precise, **CASES[case], **keys})


@functools.cache
def on_cpu(case: str) -> Tensors:
    """What every view predicts after the rounds."""
    return scores(run(made(case, "cpu"), ROUNDS))


ROUNDING = 1e-9
"""Largest relative difference: sums in another order, and on the pretended GPU another order of a
network's channels in memory."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str) -> None:
    close(scores(run(made(case, "cuda"), ROUNDS)), on_cpu(case), ROUNDING)


@pytest.mark.parametrize("case", QUICK)
def test_on_a_pretended_gpu(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with use_processor(monkeypatch):
        found = scores(run(made(case, "cuda"), ROUNDS))
    close(found, on_cpu(case), ROUNDING)


def test_the_comparison_sees_what_is_no_rounding() -> None:
    case = "fedavg over over_the_air"
    other = scores(run(made(case, "cpu", **{"engine.dtype": "float32"}), ROUNDS))
    with pytest.raises(AssertionError):
        close({name: value.double() for name, value in other.items()}, on_cpu(case), ROUNDING)
