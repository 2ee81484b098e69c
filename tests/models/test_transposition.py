"""Compiled copies and differences of transposed weights are those of tensor operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.rounding import assert_agree

from otafl.core.compiled_module import CompiledModule
from otafl.models import transposition
from otafl.models.transposition import copy_transposed, subtract_into

pytestmark = pytest.mark.exact

SHAPES = [(3, 64, 10), (1, 13, 2), (5, 9, 32), (6, 1, 4)]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompiledModule]:
    """Load the passes at once, on one thread, for blocks of any size; the module is the fixture."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(transposition, "MIN_NUMBERS", 24)
    monkeypatch.setattr(transposition._kernel, "spent_s", float("inf"))
    yield transposition._kernel
    torch.set_num_threads(threads)


def make_block(rows: int, inputs: int, outputs: int) -> torch.Tensor:
    """Return matrices with gaps between the rows, as in a flat model with further parameters."""
    flat = torch.randn(rows, inputs * outputs + 3)
    return flat[:, : inputs * outputs].view(rows, inputs, outputs)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_are_transposed(
    kernel: CompiledModule, shape: tuple[int, int, int], is_compiled: bool
) -> None:
    kernel.spent_s = float("inf") if is_compiled else -float("inf")
    with torch.inference_mode():
        block = make_block(*shape)
        out = copy_transposed(block)
    assert torch.equal(out, block.mT)
    assert out.is_contiguous()
    assert out.data_ptr() != block.data_ptr()


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_differences_to_transposed_weights(
    kernel: CompiledModule, shape: tuple[int, int, int], in_place: bool, is_compiled: bool
) -> None:
    """The difference may take the place of the old weights."""
    kernel.spent_s = float("inf") if is_compiled else -float("inf")
    with torch.inference_mode():
        old, new = make_block(*shape), torch.randn(*shape).mT.contiguous().mT
        expected = new - old
        out = old if in_place else make_block(*shape)
        subtract_into(new, old, out)
    assert_agree(out, expected)


def test_other_parameters_use_tensor_operations(
    kernel: CompiledModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors, straight and few matrices, double precision, gradients and several threads."""

    def refuse(*_: object) -> None:
        raise AssertionError("the compiled pass was loaded")

    turned = torch.randn(2, 3, 4).mT
    with torch.inference_mode():
        copy_transposed(turned)  # so that the module is imported
        monkeypatch.setattr(kernel, "get", refuse)
        few = turned[:1]
        for new in (torch.randn(2, 30), torch.randn(2, 3, 4), few, turned.double()):
            out = torch.empty_like(new)
            subtract_into(new, torch.ones_like(new), out)
            assert torch.equal(out, new - 1.0)
        copy_transposed(turned.double())
        torch.set_num_threads(2)
        copy_transposed(turned)
        torch.set_num_threads(1)
    leaf = torch.randn(2, 3, 4, requires_grad=True)
    copy_transposed(leaf).sum().backward()
    assert leaf.grad is not None
