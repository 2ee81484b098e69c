"""Channels of several antennas, and what combiners make of them."""

from __future__ import annotations

import math

import numpy as np
import torch


def draw_channels(
    trials: int = 40, devices: int = 8, antennas: int = 4, seed: int = 0
) -> torch.Tensor:
    """[S, 1, K, A] complex normal."""
    z = np.random.default_rng(seed).standard_normal((2, trials, 1, devices, antennas))
    return torch.from_numpy((z[0] + 1j * z[1]) / math.sqrt(2))


def compute_weakest_power(h: torch.Tensor, f: torch.Tensor, budget: torch.Tensor) -> torch.Tensor:
    """min_k P_k |f^H h_k|^2 [S]."""
    arrives = (f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget
    return arrives.amin(1)
