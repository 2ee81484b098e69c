"""Jitter: a random factor of mean 1 on the seconds of local work, for each device and round.

    exponential   1 - s + s E, E ~ Exp(1): the shifted exponential of Lee et al., with mean 1
    lognormal     exp(s z - s^2 / 2), z ~ N(0, 1)

with s = `jitter_scale` of the trial. A slower device draws the energy of its local work over a
longer time.

References
----------
Lee et al. 2018, "Speeding Up Distributed Machine Learning Using Codes".
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
    """Jitter of S trials.

    Parameters
    ----------
    sections : Sequence of Compute
        Sections `devices.compute` of the trials, all with the same kind of jitter.
    streams : Streams
        Random streams of the trials.
    """

    def __init__(self, sections: Sequence[Compute], streams: Streams) -> None:
        scale = [one.jitter_scale for one in sections]
        self._streams = streams
        self._law = sections[0].jitter if any(scale) else "none"
        self._scale = torch.tensor(scale, dtype=torch.float64, device=streams.device)

    def draw_factor(self, trial: Tensor, device: Tensor, round: int) -> np.ndarray | None:
        """Draw the jitter of a round.

        Parameters
        ----------
        trial, device : Tensor, int64 [N]
            Trials and devices.
        round : int
            Number of the round.

        Returns
        -------
        ndarray, float64 [N], optional
            Factors of the seconds of local work; None without jitter.
        """
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
