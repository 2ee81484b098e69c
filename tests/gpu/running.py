"""Cases of `gpu.cases` run on the CPU, on a GPU and on a pretended one."""

from __future__ import annotations

import functools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from contract.small import engine, run, scores
from gpu.cases import CASES
from support.pretended import find_caller, use_processor

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


class Noted(NamedTuple):
    """What a round on the pretended GPU was: `Processor.noted` and `Processor.count` of it, and
    what every view predicts after all rounds."""

    lines: dict[tuple[str, str, str], str]
    count: Counter[str]
    scores: Tensors


@functools.cache
def pretended(case: str, trials: int = 3, devices: int = 4) -> Noted:
    """The same on a pretended GPU, with what is noted of the last round."""
    with pytest.MonkeyPatch.context() as patch, use_processor(patch) as one:
        keys = {"trials": trials, "devices.count": devices}
        ran = run(made(case, "cuda", **keys), ROUNDS - 1)
        one.noted.clear()
        one.count.clear()
        ran.run_round(ROUNDS - 1)
        lines, count = dict(one.noted), Counter(one.count)
        return Noted(lines, count, scores(ran))


def on_gpu(case: str) -> tuple[Tensors, Counter[str]]:
    """The same on a GPU; and which functions of otafl wait for it in the last round, as torch
    counts it."""
    ran = run(made(case, "cuda"), ROUNDS - 1)
    with waits() as waited:
        ran.run_round(ROUNDS - 1)
    return scores(ran), waited


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """Count the functions of otafl in which the host waits for the GPU."""
    waited: Counter[str] = Counter()

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message):
            waited[find_caller(sys._getframe(1))[0]] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waited
        finally:
            torch.cuda.set_sync_debug_mode("default")
