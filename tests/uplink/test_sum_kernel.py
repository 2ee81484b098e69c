"""Compiled sums agree with torch's products, and serve only rounds on one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor

from otafl.core import rng
from otafl.uplink import signal, sum_kernel

pytestmark = pytest.mark.exact


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Results of torch depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draw(num_rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Draw coefficients [2, 2, K] and a payload [2, K, P]."""
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(2, num_rows, width, generator=generator)
    return torch.randn(2, 2, num_rows, generator=generator), x


@pytest.mark.parametrize("width", [4096, 4099, 8197])
@pytest.mark.parametrize("num_rows", [65, 104, 384])
def test_sums_agree_with_torch(num_rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short run multiplies by torch, a long one by the kernel, whatever its last bits are on this
    processor."""
    monkeypatch.setattr(sum_kernel, "_keeps_bits", lambda num_rows, width: True)
    few, x = draw(num_rows, width)
    found = []
    for spent_s in (-math.inf, math.inf):
        monkeypatch.setattr(rng._kernel, "spent_s", spent_s)
        with torch.inference_mode():
            found.append(signal._product(few, x))
    assert_agree(*found)


def test_kernel_serves_rounds_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    few, x = draw(100, 4096)
    assert not sum_kernel.is_suitable(few, x)  # no round
    with torch.inference_mode():
        assert sum_kernel.is_suitable(few, x) == sum_kernel._keeps_bits(100, 4096)
        for some in ((few[:, :1], x), (few, x[..., :9]), (few.double(), x.double())):
            assert not sum_kernel.is_suitable(*some)
        assert not sum_kernel.is_suitable(few, x.mT.contiguous().mT)
        large = x[:1, :, :1].expand(1, 100, sum_kernel.MAX_NUMBERS // 100 + 1)
        assert not sum_kernel.is_suitable(few, large)
        monkeypatch.setattr(sum_kernel, "_keeps_bits", lambda num_rows, width: False)
        assert not sum_kernel.is_suitable(few, x)
        monkeypatch.undo()
        torch.set_num_threads(2)
        assert not sum_kernel.is_suitable(few, x)
