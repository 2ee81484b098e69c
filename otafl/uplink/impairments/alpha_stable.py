"""Symmetric alpha-stable random numbers, the distribution of heavy-tailed interference.

At unit scale the characteristic function is exp(-|t|^alpha). At alpha = 2 they are normal with
variance 2; for a smaller alpha the variance is infinite.

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
    r"""Draw independent symmetric alpha-stable numbers of unit scale.

    Parameters
    ----------
    streams, stream, round : Streams, str and int
        Source of the random numbers.
    alpha : Tensor, float [S]
        Tail indices, above 1 and at most 2.
    count : int
        Numbers for each trial.

    Returns
    -------
    Tensor, float [S, count]
        The numbers.

    Notes
    -----
    With V uniform in (-pi / 2, pi / 2) and W exponential of mean one, the method of Chambers,
    Mallows and Stuck gives, for symmetric distributions,

    .. math::

        \frac{\sin(\alpha V)}{\cos(V)^{1 / \alpha}}
        \left( \frac{\cos((1 - \alpha) V)}{W} \right)^{(1 - \alpha) / \alpha}

    Angles are in double precision, because the tail comes from V near pi / 2.
    """
    uniform = streams.draw_uniform(stream, round, (2, count)).double()
    index = alpha.double()[:, None]
    angle, wait = math.pi * (uniform[:, 0] - 0.5), -uniform[:, 1].log()
    tail = (index * angle).sin() / angle.cos() ** (1.0 / index)
    body = (((1.0 - index) * angle).cos() / wait) ** ((1.0 - index) / index)
    return (tail * body).to(streams.dtype)
