"""Every component computes on a GPU what it computes on the CPU.

Two rounds in double precision, since random draws are the same integers on both; what predictions
differ by then is rounding. The same comparison runs on a pretended GPU, which refuses what a GPU
would refuse.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
import torch
from contract.small import close, engine, run, scores
from gpu.cases import CASES, QUICK
from support.pretended import READS, use_processor

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


ROUNDING = 1e-9
"""Largest relative difference: sums in another order, and on the pretended GPU another order of a
network's channels in memory."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str) -> None:
    close(scores(run(made(case, "cuda"), ROUNDS)), on_cpu(case), ROUNDING)


@pytest.mark.parametrize("case", QUICK)
def test_on_a_pretended_gpu(case: str) -> None:
    close(pretended(case)[0], on_cpu(case), ROUNDING)


@pytest.mark.parametrize(
    ("case", "counts"),
    [
        ("fedavg over ideal", {READS: 1}),
        ("fedavg over over_the_air", {READS: 1}),
        ("transport digital", {READS: 2}),
        ("fedrlr over over_the_air", {READS: 2}),
        ("pfedbred over over_the_air", {READS: 1}),
    ],
)
def test_how_often_a_round_waits(case: str, counts: dict[str, int]) -> None:
    """However many trials and devices there are.

    Once for the clock at its end, once to know whether all packets arrived, once for the
    singular values of layers of one rank by the server. Fewer is better; more needs a reason.
    """
    assert pretended(case)[1] == counts
    assert pretended(case, trials=5, devices=9)[1] == counts


def test_the_comparison_sees_what_is_no_rounding() -> None:
    case = "fedavg over over_the_air"
    other = scores(run(made(case, "cpu", **{"engine.dtype": "float32"}), ROUNDS))
    with pytest.raises(AssertionError):
        close({name: value.double() for name, value in other.items()}, on_cpu(case), ROUNDING)
