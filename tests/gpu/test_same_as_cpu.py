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
from gpu.running import ROUNDS, made, on_cpu, on_gpu, pretended

ROUNDING = 1e-9
"""Largest relative difference: sums in another order, and on the pretended GPU another order of a
network's channels in memory."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str) -> None:
    found, _ = on_gpu(case)
    close(found, on_cpu(case), ROUNDING)


@pytest.mark.parametrize("case", MARKED)
def test_on_a_pretended_gpu(case: str) -> None:
    close(pretended(case).scores, on_cpu(case), ROUNDING)


@pytest.mark.parametrize("chunk_mb", [1e-6, 1000])
def test_the_comparison_allows_for_rounding(chunk_mb: float) -> None:
    """Devices one by one, and all at once."""
    case = "fedrlr over over_the_air"
    again = scores(run(made(case, "cpu", **{"engine.chunk_mb": chunk_mb}), ROUNDS))
    close(again, on_cpu(case), ROUNDING)


@pytest.mark.parametrize("keys", [{"engine.dtype": "float32"}, {"seed": 8}, {"channel.snr_db": 21}])
def test_the_comparison_sees_what_is_no_rounding(keys: dict[str, object]) -> None:
    case = "fedavg over over_the_air"
    other = scores(run(made(case, "cpu", **keys), ROUNDS))
    with pytest.raises(AssertionError):
        close({name: value.double() for name, value in other.items()}, on_cpu(case), ROUNDING)
