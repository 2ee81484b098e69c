"""Compiled norms agree with torch, and serve only rounds on one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from support.rounding import assert_agree

from otafl.core import rng
from otafl.uplink import norm_kernel
from otafl.uplink.signal import compute_squared_distance, compute_squared_norm

pytestmark = pytest.mark.exact


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Results of torch depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("width", [3, 8, 1001, 1006])
@pytest.mark.parametrize("num_rows", [1, 207])
def test_norms_agree_with_torch(num_rows: int, width: int, gap: int, one_thread: None) -> None:
    """Rows lie beside each other, or with a gap between them."""
    generator = torch.Generator().manual_seed(width)
    both = torch.randn(num_rows, 2, width + gap, generator=generator)
    x, y = both[:, 0, :width], both[:, 1, :width].contiguous()
    assert_agree(norm_kernel.compute_norms(x), torch.linalg.vector_norm(x, dim=1))
    assert_agree(norm_kernel.compute_distances(x, y), torch.linalg.vector_norm(x - y, dim=1))


def test_kernel_and_tensor_operations_agree(
    one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a long run, which loads the kernel, and in a short one, whatever the kernel's last bits
    are on this processor."""
    monkeypatch.setattr(norm_kernel, "_keeps_bits", lambda: True)
    x, y = torch.randn(2, 3, 30_000, generator=torch.Generator().manual_seed(2))
    found = []
    for spent_s in (-math.inf, math.inf):
        monkeypatch.setattr(rng._kernel, "spent_s", spent_s)
        with torch.inference_mode():
            found.append(torch.stack([compute_squared_norm(x), compute_squared_distance(x, y)]))
    assert_agree(*found)


def test_kernel_serves_rounds_on_one_thread(
    one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2, norm_kernel.MIN_NUMBERS)
    assert not norm_kernel.is_suitable(x)  # no round
    with torch.inference_mode():
        assert norm_kernel.is_suitable(x) == norm_kernel._keeps_bits()
        for other in (x.double(), x[:, :9], x[:, ::2], x[:1].expand(2, -1)):
            assert not norm_kernel.is_suitable(other)
        monkeypatch.setattr(norm_kernel, "_keeps_bits", lambda: False)
        assert not norm_kernel.is_suitable(x)
        monkeypatch.undo()
        torch.set_num_threads(2)
        assert not norm_kernel.is_suitable(x)
