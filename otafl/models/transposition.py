"""Copies and differences of weights that lie transposed in memory.

Narrow weights are trained transposed, and sent as they are. Compiled passes take half the time of
tensor operations, with the same bits.
"""

from __future__ import annotations

import time
from types import ModuleType

from otafl.core.compiled_module import CompiledModule
from otafl.core.lazy import Tensor, torch

_kernel = CompiledModule("otafl.models.transposition_kernel")

SHARE = 0.5
"""Share of the time of tensor operations that compiled passes save, about."""

MIN_NUMBERS = 1 << 14
"""Smallest number of elements; for fewer, the call takes longer than it saves."""


def copy_transposed(block: Tensor) -> Tensor:
    """Copy the transposes of matrices.

    Parameters
    ----------
    block : Tensor [n, M, N]
        Matrices.

    Returns
    -------
    Tensor [n, N, M]
        Transposes, in contiguous memory of their own.
    """
    kernel = _get_kernel(block)
    if kernel is not None:
        out = block.new_empty(len(block), block.shape[2], block.shape[1])
        kernel.copy_transposed(block.numpy(), out.numpy())
        return out
    began_s = time.thread_time()
    out = block.mT.clone(memory_format=torch.contiguous_format)
    _kernel.count_time(began_s, SHARE)
    return out


def subtract_into(new: Tensor, old: Tensor, out: Tensor) -> None:
    """Write new - old to `out`.

    Parameters
    ----------
    new, old, out : Tensor [n, *shape]
        Parameters; the matrices of `new` may lie transposed in memory.
    """
    if new.dim() != 3 or new.is_contiguous() or not new.mT.is_contiguous():
        torch.sub(new, old, out=out)
        return
    kernel = _get_kernel(new, old)
    if kernel is not None:
        kernel.subtract_from_transposed(new.mT.numpy(), old.numpy(), out.numpy())
        return
    began_s = time.thread_time()
    torch.sub(new, old, out=out)
    _kernel.count_time(began_s, SHARE)


def _get_kernel(*blocks: Tensor) -> ModuleType | None:
    """Return the compiled passes for large blocks in single precision on one thread, or None."""
    suitable = (
        blocks[0].numel() >= MIN_NUMBERS
        and all(one.is_cpu and one.dtype == torch.float32 for one in blocks)
        and torch.is_inference_mode_enabled()
        and torch.get_num_threads() == 1
    )
    return _kernel.get(blocks[0].device) if suitable else None
