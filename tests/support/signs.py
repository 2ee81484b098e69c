"""Singular vectors of one sign, whichever library finds them: random codes of FedRLR multiply them,
so that other signs give other errors of the same distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from otafl.factorised import decomposition

Parts = tuple[Tensor, Tensor, Tensor]


def _fix(decompose: Callable[..., Parts]) -> Callable[..., Parts]:
    def fixed(matrix: Tensor, *args: Any, **kwargs: Any) -> Parts:
        u, s, vt = decompose(matrix, *args, **kwargs)
        first = u[..., : s.shape[-1]]
        sign = first.gather(-2, first.abs().argmax(-2, keepdim=True)).sign()
        sign = torch.where(sign == 0, 1.0, sign)
        signs = torch.cat([sign, torch.ones_like(u[..., :1, s.shape[-1] :])], -1)
        below = vt[..., s.shape[-1] :, :]
        return u * signs, s, torch.cat([vt[..., : s.shape[-1], :] * sign.mT, below], -2)

    return fixed


def fix_signs() -> None:
    """Make the largest number of each left vector positive, for the rest of the program."""
    torch.linalg.svd = _fix(torch.linalg.svd)
    decomposition.decompose_by_rotations = _fix(decomposition.decompose_by_rotations)
