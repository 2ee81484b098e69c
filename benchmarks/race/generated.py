"""Images of the size of CIFAR-10's, generated: ten patterns of colour, each under much noise."""

from __future__ import annotations

import numpy as np

from otafl.data import DataSet

LEVEL = 0.45
"""Standard deviation of a pattern beside that of the noise, 1."""


def images() -> DataSet:
    """Return 50,000 and 10,000 images [3, 32, 32] of ten classes."""
    draw = np.random.default_rng(0)
    pattern = draw.standard_normal((10, 3, 8, 8), dtype=np.float32).repeat(4, 2).repeat(4, 3)
    y = draw.integers(0, 10, 60_000)
    x = draw.standard_normal((60_000, 3, 32, 32), dtype=np.float32)
    x += LEVEL * pattern[y]
    return DataSet(x[:50_000], y[:50_000], x[50_000:], y[50_000:], classes=10)
