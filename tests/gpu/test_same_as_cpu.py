"""Every component computes on a GPU what it computes on the CPU.

Two rounds in double precision, since random draws are the same integers on both; what predictions
differ by then is rounding. The same comparison runs on a pretended GPU, which refuses what a GPU
would refuse.
"""

from __future__ import annotations

import pytest
import torch
from contract.small import close, run, scores
from gpu.cases import CASES, MARKED
from gpu.running import ROUNDS, made, on_cpu, pretended
from support.pretended import READS

ROUNDING = 1e-9
"""Largest relative difference: sums in another order, and on the pretended GPU another order of a
network's channels in memory."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str) -> None:
    close(scores(run(made(case, "cuda"), ROUNDS)), on_cpu(case), ROUNDING)


@pytest.mark.parametrize("case", MARKED)
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
