"""Check gradients against finite differences in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

K = 6


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def draw_complex(*shape: int, seed: int = 0) -> Tensor:
    return torch.complex(draw(*shape, seed=seed), draw(*shape, seed=seed + 100))


def check_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Against central differences, along one random direction of the inputs and outputs, which all
    entries are part of."""
    leaves = tuple(one.detach().clone().requires_grad_() for one in inputs)
    assert torch.autograd.gradcheck(
        function, leaves, eps=1e-6, atol=1e-6, rtol=1e-4, fast_mode=True
    )
