"""Draw symmetric alpha-stable numbers, the law of interference with heavy tails.

Of unit scale their characteristic function is exp(-|t|^alpha): at alpha = 2 normal with variance 2,
below it without a variance.

References
----------
Chambers, Mallows, Stuck 1976, "A Method for Simulating Stable Random Variables".
Yang, Chen, Quek, Poor 2022, "Revisiting Analog Over-the-Air Machine Learning: The Blessing and
Curse of Interference".
"""

from __future__ import annotations

import math

from torch import Tensor

from otafl.core.rng import Streams


def alpha_stable(streams: Streams, stream: str, round: int, alpha: Tensor, count: int) -> Tensor:
    """Return [S, count] independent numbers of unit scale.

    With V uniform in plus or minus pi / 2 and W exponential of mean one, such a number is
    sin(alpha V) / cos(V)^(1 / alpha) (cos((1 - alpha) V) / W)^((1 - alpha) / alpha). Angles are in
    double precision: the tail comes from V next to pi / 2.

    Parameters
    ----------
    streams, stream, round : of the draw.
    alpha : [S], the tail indices, over 1 and up to 2.
    """
    uniform = streams.draw_uniform(stream, round, (2, count)).double()
    index = alpha.double()[:, None]
    angle, wait = math.pi * (uniform[:, 0] - 0.5), -uniform[:, 1].log()
    tail = (index * angle).sin() / angle.cos() ** (1.0 / index)
    body = (((1.0 - index) * angle).cos() / wait) ** ((1.0 - index) / index)
    return (tail * body).to(streams.dtype)
