"""Tests of computing on a GPU, and on a pretended one.

PyTorch knows the pretended one for the rest of a program's life, and must know it before its first
gradient. So these tests are collected only in a program of their own, which says what it runs them
on: `golden.test_gpu` starts it, and `make gpu`.
"""

from __future__ import annotations

import os
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


ON = os.environ.get("OTAFL_GPU_TESTS", "")

if ON == "pretended":
    from support.pretended import register_device

    register_device()

if ON:
    # the largest number of each left singular vector is positive, whichever library finds them:
    # random codes of FedRLR multiply them, so that other signs give other errors
    torch.linalg.svd = _fix(torch.linalg.svd)
    decomposition.decompose_by_rotations = _fix(decomposition.decompose_by_rotations)

collect_ignore_glob = [] if ON in ("pretended", "cuda") else ["test_*.py"]
