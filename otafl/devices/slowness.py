"""Slow computing: random factors on the seconds of local work, by round and by bursts of rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from otafl.core.rng import Purpose, Streams, declare_purpose
from otafl.devices.compute.base import Compute

JITTER = declare_purpose("jitter", __name__)


class Jitter:
    """Jitter of S trials: a random factor of mean 1 for each device and round.

    With s = `jitter_scale` of the trial, the factor is

        exponential   1 - s + s E, E ~ Exp(1): the shifted exponential of Lee et al., with mean 1
        lognormal     exp(s z - s^2 / 2), z ~ N(0, 1)

    A slower device draws the energy of its local work over a longer time.

    Parameters
    ----------
    sections : Sequence of Compute
        Sections `devices.compute` of the trials, all with the same kind of jitter.
    streams : Streams
        Random streams of the trials.

    References
    ----------
    Lee et al. 2018, "Speeding Up Distributed Machine Learning Using Codes".
    """

    def __init__(self, sections: Sequence[Compute], streams: Streams) -> None:
        scale = [one.jitter_scale for one in sections]
        self._streams, self._law = streams, sections[0].jitter
        self._scale = torch.tensor(scale, dtype=torch.float64, device=streams.device)

    def draw_factor(self, trial: Tensor, device: Tensor, round: int) -> np.ndarray:
        """Draw the jitter of a round.

        Parameters
        ----------
        trial, device : Tensor, int64 [N]
            Trials and devices.
        round : int
            Number of the round.

        Returns
        -------
        ndarray, float64 [N]
            Factors of the seconds of local work.
        """
        scale, streams = self._scale[trial], self._streams
        if self._law == "exponential":
            u = streams.draw_device_uniform(JITTER, round, trial, device, (1,)).squeeze(1).double()
            factor = 1.0 - scale - scale * u.log()
        else:
            z = streams.draw_device_normal(JITTER, round, trial, device, (1,)).squeeze(1).double()
            factor = (scale * z - scale.square() / 2).exp()
        return factor.cpu().numpy()


def build_jitter(sections: Sequence[Compute], streams: Streams) -> Jitter | None:
    """Return the jitter of the trials, or None if they have none."""
    if sections[0].jitter == "none" or not any(one.jitter_scale for one in sections):
        return None
    return Jitter(sections, streams)


class SlowBursts:
    """Bursts of slow computing, a two-state Markov chain for each device.

    A burst begins with probability p in a round, and continues with probability 1 - 1/L in each
    next round. No device is slow before round 0. The state does not depend on the participants of
    earlier rounds.

    Parameters
    ----------
    probability : ndarray, float64 [S]
        Probability p.
    rounds : ndarray, float64 [S]
        Mean length L of a burst.
    factor : ndarray, float64 [S]
        Factor of the seconds of local work during a burst.
    streams : Streams
        Random streams of the trials.
    purpose : Purpose
        The stream of the draws.

    References
    ----------
    Gilbert 1960, "Capacity of a Burst-Noise Channel".
    """

    def __init__(
        self,
        probability: np.ndarray,
        rounds: np.ndarray,
        factor: np.ndarray,
        streams: Streams,
        purpose: Purpose,
    ) -> None:
        self._begins, self._ends = probability[:, None], 1.0 / rounds[:, None]
        self._factor = factor[:, None]
        self._streams, self._purpose = streams, purpose
        self._start(1)

    def _start(self, devices: int) -> None:
        """Reset the state to that before round 0, for so many devices."""
        self._pairs = self._streams.list_pairs(devices)
        self._slow = np.zeros((len(self._begins), devices), dtype=bool)
        self._next = 0

    def draw_factor(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray:
        """Draw the slowdown of local work.

        Parameters
        ----------
        trial, device : ndarray, int64 [N]
            Trials and devices.
        round : int
            Number of the round.

        Returns
        -------
        ndarray, float64 [N]
            Factors of the seconds of local work, 1 outside of bursts.
        """
        devices, most = self._slow.shape[1], int(device.max(initial=-1)) + 1
        if round < self._next - 1 or most > devices:  # an earlier round, or further devices
            self._start(devices if most <= devices else max(most, 2 * devices))
        while self._next <= round:
            draw = self._streams.draw_device_uniform(self._purpose, self._next, *self._pairs, ())
            u = draw.view(self._slow.shape).cpu().numpy()
            self._slow = np.where(self._slow, u >= self._ends, u < self._begins)
            self._next += 1
        return np.where(self._slow, self._factor, 1.0)[trial, device]
