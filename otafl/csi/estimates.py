"""Channel state information: perfect, with an error, delayed, quantised phases, from pilots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.fading import ROUNDS_PER_BLOCK
from otafl.core.contracts import ChannelState, unsqueeze_like
from otafl.core.rng import declare_family, declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi, draw_device_errors, draw_path_errors


class Perfect(Csi):
    """Exact channel knowledge of devices and server: the estimate is h.

    Study: `studies/physical_layer/fashion_mnist_gbma_ci.yaml`.
    """

    is_perfect: ClassVar[bool] = True

    class Settings(Csi.Settings):
        name: Literal["perfect"] = "perfect"

    @property
    def variance(self) -> Tensor:
        like = self.streams
        return torch.zeros(like.num_trials, dtype=like.dtype, device=like.device)

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> None:
        return None


ERROR = declare_purpose("csi_error", __name__)
PATH_ERROR = declare_family("csi_path_error", __name__)


class NormalError(Csi):
    """Normal error of the channel that devices and server know.

    The estimate is h + e, e ~ CN(0, variance), independent over devices and rounds. Each path by
    which a reflecting surface is set has an error of its own with the same variance.
    """

    class Settings(Csi.Settings):
        name: Literal["error"] = "error"
        variance: float = declare_stackable(0.01, ge=0)
        """variance of the estimation error, at E|h|^2 = 1"""

    @property
    def variance(self) -> Tensor:
        return self.hyper["variance"]

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        r"""Return h + e, complex [S, K, A, B, F].

        Notes
        -----
        .. math::

            \hat h = h + e, \quad e \sim CN(0, \sigma_e^2)
        """
        variance = unsqueeze_like(self.variance, h)
        return h + draw_device_errors(self.streams, ERROR, round, h, variance)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        true = paths(round)
        variance = unsqueeze_like(self.variance, true)
        return true + draw_path_errors(self.streams, PATH_ERROR, round, true, variance)


class Delay(Csi):
    """Channel of an earlier round, in the same coherence blocks, as the estimate.

    The estimate is the fading `rounds` rounds ago. In the first rounds that is before the run,
    where the same random process has its past. The large-scale gain is known. With a reflecting
    surface, the estimate is the channel with the earlier phases of the surface, and the surface is
    set by the earlier paths. Under Jakes' spectrum and a delay tau,

        E[h_hat^* h] = J0(2 pi f_D tau).

    With fading that is new in each round, only its mean power is known (set channel.speed_kmh). At
    3 km/h and 3.5 GHz the correlation is 0.91 after 10 ms, and at most 0.4 in magnitude beyond 40
    ms.

    References
    ----------
    Clarke 1968, "A Statistical Theory of Mobile-Radio Reception".
    """

    class Settings(Csi.Settings):
        example: ClassVar = {"channel.speed_kmh": 3.0, "channel.round_interval_s": 0.01}

        name: Literal["delay"] = "delay"
        rounds: int = Field(1, ge=1)
        """number of rounds between estimate and use; in the first ones the estimate is from before
        the run"""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen: dict[int, ChannelState] = {}

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        # channels draw many rounds at a time and keep one such batch; alternating between two
        # batches would draw both in every round
        """Return the fading of `rounds` rounds ago, complex [S, K, A, B, F]."""
        first = round - self.settings.rounds
        if first not in self._seen:
            together = range(first, max(first + 1, min(first + ROUNDS_PER_BLOCK, 0)))
            self._seen |= {t: self.channel.get_state(t) for t in together}
        if round not in self._seen:
            self._seen[round] = self.channel.get_state(round)
        self._seen = {t: state for t, state in self._seen.items() if first <= t <= round}
        past = self._seen[first]
        return past.extend_to(h.shape[3] * (past.block_symbols or 1))

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        return paths(round - self.settings.rounds)


class PhaseFeedback(Csi):
    """Exact amplitude of the channel, and its phase with a few bits.

    The estimate of each antenna's channel is |h| exp(j Q(angle h)): the phase is rounded to the
    nearest of 2^b equally spaced levels, one of which is 0. The error of a uniform phase is uniform
    in [-x, x], x = pi / 2^b, so E cos(error) = sin(x) / x. The feedback is sent on the downlink,
    and its bits are not counted. The paths by which a reflecting surface is set are estimated in
    the same way.
    """

    class Settings(Csi.Settings):
        name: Literal["phase_feedback"] = "phase_feedback"
        bits: int = declare_stackable(2, ge=1, le=16)
        """bits of the phase, which has 2^bits levels"""

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return self._round_phases(h)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        return self._round_phases(paths(round))

    def _round_phases(self, h: Tensor) -> Tensor:
        """Round the phases of the trials' channels h [S, ...]."""
        step = unsqueeze_like(2.0 * math.pi / 2.0 ** self.hyper["bits"], h)
        return torch.polar(h.abs(), torch.round(h.angle() / step) * step)


PILOTS = declare_purpose("csi_pilots", __name__)
PATH_PILOTS = declare_family("csi_path_pilots", __name__)

MIN_GAIN = 1e-30
"""Smallest gain that is divided by; without received pilots, the estimate is finite noise."""


class Pilots(Csi):
    """Channel estimation from pilots, by least squares or with the smallest mean squared error.

    Each device sends pilots in each coherence block, which are counted as side information. There
    are L pilots of power P in a cell, a coherence block of a sub-carrier group. From each, every
    antenna receives y = sqrt(beta P) h + n, n ~ CN(0, 1).

    Least squares gives

        h_ls = mean(y) / sqrt(beta P) = h + e,   e ~ CN(0, 1 / (L P beta)).

    The mean over the pilots is a sufficient statistic, so it is drawn directly. The MMSE estimate
    on a flat cell with E|h|^2 = 1, which is known, is h_mmse = h_ls / (1 + 1 / (L P beta)).

    Each path by which a reflecting surface is set has L pilots of its own in a block. It is
    estimated by least squares, because its mean power counts as unknown.

    The variance of the error of least squares is known if it is equal for all devices of a trial.

    References
    ----------
    Kay 1993, "Fundamentals of Statistical Signal Processing: Estimation Theory".
    """

    class Settings(Csi.Settings):
        name: Literal["pilots"] = "pilots"
        estimator: Literal["ls", "mmse"] = "ls"
        """estimate of each coherence block and sub-carrier group: least squares (ls), or smallest
        mean squared error with known mean power (mmse)"""
        length: int = Field(1, ge=1)
        """number of pilots in a block, in each sub-carrier group"""
        power_db: Decibels = declare_stackable(0.0)
        """power of a pilot in dB over the device's budget"""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        length, budget = self.settings.length, self.budget
        self._energy = length * budget.budget * db_to_linear(self.hyper["power_db"][:, None])
        start = self.channel.get_large_scale_state(0)
        self._symbols = length * start.h.shape[4]
        error = self.error_variance(start.gain)
        alike = torch.equal(start.gain, budget.gain) and bool((error == error[:, :1]).all())
        self._variance = error[:, 0] if self.settings.estimator == "ls" and alike else None

    @property
    def variance(self) -> Tensor | None:
        return self._variance

    @property
    def num_pilot_symbols(self) -> int:
        return self._symbols + self.settings.length * self.channel.num_sounded_paths

    def error_variance(self, gain: Tensor) -> Tensor:
        """Compute the error variance 1 / (L P beta) of the least-squares estimate, [S, K]."""
        return 1.0 / (self._energy * gain.clamp_min(MIN_GAIN))

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        r"""Estimate h from pilots, complex [S, K, A, B, F].

        Notes
        -----
        .. math::

            \hat h_{LS} = h + e, \quad e \sim CN(0, 1 / (L P \beta)), \quad
            \hat h_{MMSE} = \frac{\hat h_{LS}}{1 + 1 / (L P \beta)}
        """
        error = self.error_variance(gain)[:, :, None, None, None]
        h_ls = h + draw_device_errors(self.streams, PILOTS, round, h, error)
        return h_ls if self.settings.estimator == "ls" else h_ls / (1.0 + error)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        true = paths(round)
        error = self.error_variance(gain)[:, :, None, None, None]
        return true + draw_path_errors(self.streams, PATH_PILOTS, round, true, error)
