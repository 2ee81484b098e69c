"""Slow local work down at random, by a factor of mean 1, anew for each device and round.

    exponential   1 - s + s E, E ~ Exp(1): the shifted exponential of Lee et al. 2018, "Speeding Up
                  Distributed Machine Learning Using Codes", scaled to mean 1
    lognormal     exp(s z - s^2 / 2), z ~ N(0, 1)

with s = `jitter_scale` of the trial. A device that is slowed draws its joules over a longer time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from otafl.core.rng import Streams, declare_purpose
from otafl.devices.compute.base import Compute

JITTER = declare_purpose("jitter", __name__)


class Jitter:
    """Draw the jitter of S trials.

    sections: the `devices.compute` of each, all with the same kind of jitter.
    """

    def __init__(self, sections: Sequence[Compute], streams: Streams) -> None:
        scale = [one.jitter_scale for one in sections]
        self._streams = streams
        self._law = sections[0].jitter if any(scale) else "none"
        self._scale = torch.tensor(scale, dtype=torch.float64, device=streams.device)

    def draw_factor(self, trial: Tensor, device: Tensor, round: int) -> np.ndarray | None:
        """Draw the factor [N] float64 of pairs trial [N], device [N]; None where there is none."""
        if self._law == "none":
            return None
        scale, streams = self._scale[trial], self._streams
        if self._law == "exponential":
            u = streams.draw_device_uniform(JITTER, round, trial, device, (1,)).squeeze(1).double()
            factor = 1.0 - scale - scale * u.log()
        else:
            z = streams.draw_device_normal(JITTER, round, trial, device, (1,)).squeeze(1).double()
            factor = (scale * z - scale.square() / 2).exp()
        return factor.cpu().numpy()
