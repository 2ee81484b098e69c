"""Projection of counts by trying all that are feasible."""

from __future__ import annotations

import itertools

import numpy as np


def find_nearest_counts(y: np.ndarray, total: int) -> np.ndarray:
    """Find the nearest non-negative integers to y [M] with this sum."""
    found = [n for n in itertools.product(range(total + 1), repeat=len(y)) if sum(n) == total]
    off = [float(((np.array(n) - y) ** 2).sum()) for n in found]
    return np.array(found[int(np.argmin(off))], dtype=float)
