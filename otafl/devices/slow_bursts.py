"""Bursts of slow computing, a two-state Markov chain for each device.

References
----------
Gilbert 1960, "Capacity of a Burst-Noise Channel".
"""

from __future__ import annotations

import numpy as np

from otafl.core.rng import Purpose, Streams


class SlowBursts:
    """Bursts of slow computing.

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
