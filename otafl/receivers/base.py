"""Receivers, which combine all antennas to one before a policy acts, and their contract."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import MIN_SNR
from otafl.core.settings import Settings
from otafl.power.base import PowerPolicy

TINY = 1e-30
"""Smallest norm of a vector with a direction."""


class Receiver(Settings):
    """Combination of the server's antennas to one, f^H h, with unit norm.

    A receiver is its own settings. `otafl list NAME` prints an example scenario of each
    one.
    """

    turns_phases: ClassVar[bool] = False
    """Whether it changes the phase of the received signal, and so has an effect with one antenna
    too."""

    scale: Literal["policy", "mmse"] = "policy"
    """receive scaling: that of the power policy, or that of smallest mean squared error for its
    transmit scalars (mmse)"""

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        """Return the receiver for a policy and a number of antennas; by default this one."""
        return self

    @abstractmethod
    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        """Compute the combiner f, which makes the scalar channels f^H h_k.

        Parameters
        ----------
        h : Tensor, complex [S, Q, K, A]
            Estimated channels, with large-scale gain.
        transmit_mask : Tensor, bool [S, K]
            Transmitters, for which the combiner is computed.
        budget : Tensor, float [S, K]
            Power budgets P_k.

        Returns
        -------
        Tensor, complex [S, Q, A]
            Combiner f with unit norm.
        """


def select_first_antenna(like: Tensor) -> Tensor:
    """Return the combiner that uses only the first antenna, [..., A]."""
    if like.shape[-1] == 1:
        return torch.ones_like(like)
    combiner = torch.zeros_like(like)
    combiner[..., 0] = 1.0
    return combiner


def normalise_combiner(combiner: Tensor) -> Tensor:
    """Return f / |f|, complex [..., A]; the first antenna if f is zero."""
    norm = torch.linalg.vector_norm(combiner, dim=-1, keepdim=True)
    return torch.where(norm > TINY, combiner / norm.clamp_min(TINY), select_first_antenna(combiner))


class Scalar(Receiver):
    """First antenna of the server, without the others."""

    name: Literal["scalar"] = "scalar"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        return select_first_antenna(h[:, :, 0])


class Mrc(Receiver):
    """Combiner along the sum of channels, for devices without phase knowledge (maximum ratio).

    With f = sum_k h_k / |sum_k h_k|, f^H h_k is real and equal for all devices in the limit of many
    antennas. Blind over-the-air computation uses this combiner.

    References
    ----------
    Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning".
    """

    turns_phases: ClassVar[bool] = True
    example: ClassVar = {"channel.antennas": 64, "power.name": "blind"}

    name: Literal["mrc"] = "mrc"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the normalised sum of the channels, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \sum_k h_k / \left| \sum_k h_k \right|
        """
        return normalise_combiner((h * transmit_mask[:, None, :, None]).sum(2))


class Eigen(Receiver):
    """Combiner along the first eigenvector of the received covariance, of the most power.

    The covariance is sum_k P_k h_k h_k^H over the transmitters.
    """

    example: ClassVar = {"channel.antennas": 4}

    name: Literal["eigen"] = "eigen"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the first eigenvector of the received covariance, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \arg\max_{|f| = 1} f^H \left( \sum_k P_k h_k h_k^H \right) f
        """
        return compute_first_eigenvector(compute_amplitudes(h, transmit_mask, budget))


def compute_amplitudes(h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
    """Compute sqrt(P_k) h_k of the transmitters, relative to the strongest one's norm.

    Parameters
    ----------
    h : Tensor, complex [S, Q, K, A]
        Estimated channels.
    sends : Tensor, bool [S, K]
        Transmitters.
    budget : Tensor, float [S, K]
        Power budgets P_k.

    Returns
    -------
    Tensor, complex [S, Q, K, A]
        Received amplitudes, 0 for silent devices.
    """
    reach = h * (budget.sqrt() * sends)[:, None, :, None]
    norm = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    return reach / norm.amax(2, keepdim=True).clamp_min(TINY)


def compute_first_eigenvector(reach: Tensor) -> Tensor:
    """Compute the first eigenvector of the covariance of received amplitudes.

    If there are fewer devices than antennas, it is computed from the devices' [K, K] products.

    Parameters
    ----------
    reach : Tensor, complex [..., K, A]
        Received amplitudes.

    Returns
    -------
    Tensor, complex [..., A]
        Eigenvector, whose first entry is real and not negative.
    """
    few = reach.shape[-2] < reach.shape[-1]
    products = reach.conj() @ reach.mT if few else reach.mT @ reach.conj()
    vector = torch.linalg.eigh(products).eigenvectors[..., -1]
    if few:
        vector = normalise_combiner((reach.mT @ vector[..., None])[..., 0])
    return vector * torch.conj(torch.sgn(vector[..., :1]) + (vector[..., :1] == 0))


class Auto(Receiver):
    """Receiver for which the power policy is designed; with one antenna, none is needed.

    With one antenna only the sum of channels has an effect, which blind devices need.
    """

    name: Literal["auto"] = "auto"

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        kind: type[Receiver] = registry.load_component("receiver", policy.receiver)
        if antennas == 1 and not kind.turns_phases:
            kind = Scalar
        return kind(scale=self.scale)

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        raise NotImplementedError("auto has no combiner; call that of match_policy's receiver")


DUAL_STEPS = 15
"""Gradient steps on the dual of each quadratic programme; the next one starts at their end."""


class UniformForcing(Receiver):
    """Combiner that receives the weakest device as strongly as possible (uniform forcing).

    The combiner f, |f| = 1, maximises the weakest device's received power, min_k P_k |f^H h_k|^2,
    and so the level of channel inversion.

    An equivalent problem is the smallest |f|^2 with |f^H a_k|^2 >= 1 for all k, a_k = sqrt(P_k)
    h_k. Successive convex approximation replaces |f^H a_k|^2 by its tangent at the last f. Each
    step is then a quadratic programme,

        min |f|^2   with Re(b_k^H f) >= d_k,   b_k = a_k (a_k^H f_i),   d_k = (1 + |f_i^H a_k|^2) /
            2.

    A few accelerated projected gradient steps maximise its dual, f = sum_k lambda_k b_k with lambda
    >= 0, for all trials at once. Then f is rescaled to unit norm, and the best one so far is kept.
    The problem has many local optima, so four starts run side by side. One of them is the first
    eigenvector, so the result is never worse than that.

    References
    ----------
    Chen, Qin, Li 2018, "A Uniform-Forcing Transceiver Design for Over-the-Air Function
        Computation".
    """

    example: ClassVar = {"channel.antennas": 4, "power.name": "ci"}

    name: Literal["uniform_forcing"] = "uniform_forcing"
    iterations: int = Field(30, ge=1)
    """largest number of steps of the approximation"""

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the uniform-forcing combiner, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \arg\max_{|f| = 1} \min_k P_k |f^H h_k|^2
        """
        snr = budget[:, None] * torch.linalg.vector_norm(h, dim=-1).square()
        eligible_mask = transmit_mask[:, None] & (snr >= MIN_SNR)
        reach = (
            compute_amplitudes(h, transmit_mask, budget) * eligible_mask[..., None]
        )  # [S, Q, K, A]
        if h.shape[3] == 1:
            return compute_first_eigenvector(reach)
        if h.shape[3] <= h.shape[2]:
            return self._compute_combiner(reach, eligible_mask)
        # the optimal combiner lies in the span of the devices' directions
        spanned, reach = torch.linalg.qr(reach.mT)
        return normalise_combiner(
            (spanned @ self._compute_combiner(reach.mT, eligible_mask)[..., None])[..., 0]
        )

    def _compute_combiner(self, reach: Tensor, eligible_mask: Tensor) -> Tensor:
        """Compute the combiner [S, Q, A] of sqrt(P_k) h_k [S, Q, K, A] of the eligible devices."""
        start = _compute_starts(reach)
        best, there = start, eligible_mask[:, :, None]
        reach = reach[:, :, None].expand(-1, -1, start.shape[2], -1, -1)  # [S, Q, starts, K, A]
        weakest = _find_weakest(reach, best, there)
        dual = torch.zeros_like(reach[..., 0].real)
        for _ in range(self.iterations):
            start, dual = _step(reach, start, dual, there)
            level = _find_weakest(reach, start, there)
            better = level > weakest
            best = torch.where(better[..., None], start, best)
            weakest = torch.where(better, level, weakest)
        first = weakest.argmax(-1)[..., None, None].expand(-1, -1, 1, best.shape[-1])
        return best.gather(2, first)[:, :, 0]


def _compute_starts(reach: Tensor) -> Tensor:
    """Compute the starts, [S, Q, 4, A].

    They are the first eigenvector, and three sums of the devices' directions: unweighted, with
    larger weights of weak devices, and with chirped phases.
    """
    devices = reach.shape[2]
    size = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    direction = torch.where(size > TINY, reach / size.clamp_min(TINY), 0.0)
    inverse = torch.where(size > TINY, 1.0 / size.clamp_min(TINY), 0.0)
    angle = torch.pi * torch.arange(devices, device=reach.device) ** 2 / devices
    chirp = torch.polar(torch.ones_like(angle), angle).to(reach.dtype)[:, None]
    sums = [direction.sum(2), (direction * inverse).sum(2), (direction * chirp).sum(2)]
    return torch.stack([compute_first_eigenvector(reach), *map(normalise_combiner, sums)], 2)


def _project(reach: Tensor, combiner: Tensor) -> Tensor:
    """Compute a_k^H f [..., K] of a [..., K, A] and f [..., A]."""
    return (reach.conj() @ combiner[..., None])[..., 0]


def _find_weakest(reach: Tensor, combiner: Tensor, there: Tensor) -> Tensor:
    """Compute min_k |f^H a_k|^2 [...] over the eligible devices."""
    power = _project(reach, combiner).abs().square()
    return power.masked_fill(~there, torch.inf).amin(-1)


def compute_tangent_bound(power: Tensor) -> Tensor:
    """Compute d_k from |f_i^H a_k|^2.

    The tangent of |f^H a_k|^2 at f_i, 2 Re(b_k^H f) - |f_i^H a_k|^2, is at least 1 if Re(b_k^H f)
    is at least d_k.

    Parameters
    ----------
    power : Tensor, float
        |f_i^H a_k|^2.

    Returns
    -------
    Tensor, float
        d_k.
    """
    return (1.0 + power) / 2.0


def _step(reach: Tensor, last: Tensor, dual: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next unit combiner, and its multipliers, which start the next step."""
    inner = _project(reach, last)
    size = inner.abs().masked_fill(~there, torch.inf).amin(-1)[..., None].clamp_min(TINY)
    inner = inner / size  # of the f that is just feasible: |f^H a_k| >= 1
    norm = torch.linalg.vector_norm(reach, dim=-1) * inner.abs()
    norm = norm.clamp_min(TINY)
    slope = reach * (inner / norm)[..., None]  # b_k of unit norm
    bound = torch.where(there, compute_tangent_bound(inner.abs().square()) / norm, 0.0)
    gram = (slope.conj() @ slope.mT).real
    rate = 1.0 / torch.linalg.matrix_norm(gram, ord=1).clamp_min(1.0)[..., None]
    ahead, weight = dual, 1.0
    for _ in range(DUAL_STEPS):
        after = (ahead + rate * (bound - (gram @ ahead[..., None])[..., 0])).clamp_min(0.0)
        after = torch.where(there, after, 0.0)
        following = (1.0 + (1.0 + 4.0 * weight * weight) ** 0.5) / 2.0
        ahead = after + (weight - 1.0) / following * (after - dual)
        dual, weight = after, following
    return normalise_combiner((slope * dual[..., None]).sum(-2)), dual
