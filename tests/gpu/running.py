"""Cases of `gpu.cases` run on the CPU, on a GPU and on a pretended one."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
from contract.small import engine, run, scores
from gpu.cases import CASES
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


@functools.cache
def pretended(case: str, trials: int = 3, devices: int = 4) -> tuple[Tensors, Counter[str]]:
    """The same on a pretended GPU, and `Processor.count` of the last round."""
    with pytest.MonkeyPatch.context() as patch, use_processor(patch) as one:
        keys = {"trials": trials, "devices.count": devices}
        ran = run(made(case, "cuda", **keys), ROUNDS - 1)
        one.count.clear()
        ran.run_round(ROUNDS - 1)
        count = Counter(one.count)
        return scores(ran), count
