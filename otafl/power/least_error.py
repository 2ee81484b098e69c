"""Policies whose receive scaling has the smallest squared error, under a peak constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Coefficients, Link
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.power.base import (
    FADED_SNR,
    TINY,
    PowerPolicy,
    align_phases,
    align_with_mmse_scaling,
    compute_amplitude_bound,
    compute_threshold,
    invert_channel,
)


class Full(PowerPolicy):
    """Full power, with the receive scaling of smallest mean squared error.

    Every device transmits at its budget. The receive scaling minimises sum m (c - 1)^2 + N / eta,
    the error of uncorrelated symbols.

    Study: `studies/field/field.yaml`.
    """

    alone: ClassVar[bool] = True

    name: Literal["full"] = "full"

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute full power with the MMSE receive scaling of `compute_mmse_root_eta`.

        Notes
        -----
        .. math::

            |p_k| = \sqrt{P_k / m_k}
        """
        active = link.eligible_mask
        return None, align_with_mmse_scaling(link, compute_amplitude_bound(link) * active, active)


class OpenLoop(PowerPolicy):
    """Compensation of a fraction of the path loss, as in open-loop power control of 3GPP.

    In dB, transmit power = min(P_max, P_0 + alpha PL), without the terms of the closed loop and the
    transport format. PL is only the large-scale gain, so fading averages out. Phases are
    pre-compensated, because signals must add up, and the receive scaling has the smallest mean
    squared error, as in `full`.

    References
    ----------
    3GPP TS 38.213, section 7.1.1.
    """

    alone: ClassVar[bool] = True
    example_without_noise: ClassVar[Mapping[str, Any]] = {"p0_db": 200.0}

    name: Literal["open_loop"] = "open_loop"
    alpha: float = declare_stackable(1.0, ge=0, le=1)
    """fraction of the path loss in dB that is compensated"""
    p0_db: Decibels = declare_stackable(20.0)
    """received power at full compensation in dB over the noise in the band"""

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute the amplitudes of open-loop power control, with the MMSE receive scaling.

        Notes
        -----
        With the large-scale gain beta_k,

        .. math::

            |p_k|^2 m_k = \min(P_k, P_0 \beta_k^{-\alpha})
        """
        target = db_to_linear(link.hyper["p0_db"])
        wanted = target[:, None] * link.gain.pow(-link.hyper["alpha"][:, None])
        share = (wanted / link.budget).clamp_max(1.0).sqrt()[:, None]  # of full amplitude
        active = link.eligible_mask
        return None, align_with_mmse_scaling(
            link, compute_amplitude_bound(link) * share * active, active
        )


class CaoStatic(PowerPolicy):
    """Smallest mean squared error of each fading state under peak power.

    Devices of low quality q_k = P_k g_k / m_k transmit at full power, and the others invert their
    channel: c_k = min(1, sqrt(q_k / eta)). With q ascending and

        sqrt(eta_i) = (N + sum_{j<=i} m_j q_j) / sum_{j<=i} m_j sqrt(q_j),

    the receive scaling is eta = min_i eta_i. The minimising i is the number of devices at full
    power.

    Study: `studies/reuse/reuse.yaml`.

    References
    ----------
    Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air Computation in Fading
        Channels", static channels.
    """

    name: Literal["cao_static"] = "cao_static"

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute full power below the threshold, and inversion above it.

        Notes
        -----
        With the threshold of `compute_threshold`,

        .. math::

            |p_k| = \min(\sqrt{P_k / m_k}, \sqrt{\eta} / |h_k|)
        """
        bound = compute_amplitude_bound(link)
        there = link.eligible_mask
        reach = bound * link.h.abs()  # sqrt(q)
        root_eta = compute_threshold(
            reach, link.symbol_power, link.noise_variance[:, None, None], there
        )
        amplitude = torch.minimum(bound, invert_channel(root_eta, link))
        return None, align_phases(link, amplitude, root_eta, there)


STEPS = 24
"""Corrections of the capped set, which starts with all devices and only shrinks.

1,000 devices of very unequal quality need about ten.
"""

MIN_SHARE = 1e-6
"""Smallest beta / (1 + beta); at zero, only the sum of d counts, and its division over devices is
undefined."""


class Smcv(PowerPolicy):
    """Smallest mean squared error of symbols with a common mean over devices, under peak power.

    The policy is gradient-statistics-aware power control. With d_k = sqrt(m_k) (c_k - 1), and beta
    the squared multivariate coefficient of variation, the power about the common mean over that of
    the mean, it minimises

        beta sum d_k^2 + (sum d_k)^2 + (1 + beta) N / eta,    c_k <= sqrt(q_k / eta).

    This is the paper's objective with cross powers E x_j x_k = sqrt(m_j m_k) / (1 + beta), as those
    of updates scaled by unequal weights. For a given eta, the u uncapped devices share d = t,

        t = - sum_capped d_k / (beta + u),

    so that they compensate for the capped ones. The capped set then gives eta in closed form. With
    s = 1 / sqrt(eta) the problem is convex and quadratic in (s, d). For beta -> infinity it is
    `cao_static`. For beta -> 0, sqrt(eta) = (Q^2 + N) / (K Q) at m = 1, with Q = sum sqrt(q).

    References
    ----------
    Zhang, Tao 2021, "Gradient Statistics Aware Power Control for Over-the-Air Federated Learning".
    """

    small: ClassVar[Mapping[str, Any]] = {"variation": 2.0}

    name: Literal["smcv"] = "smcv"
    variation: float | None = declare_stackable(None, ge=0, le=1e30)
    """beta, squared multivariate coefficient of variation of the symbols; if not given, that of
    each round, which is side information"""

    @property
    def needs_variation(self) -> bool:
        return self.variation is None

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute the capped set, and the scalars that minimise the squared error.

        Notes
        -----
        The uncapped devices have

        .. math::

            c_k = 1 + t / \sqrt{m_k}, \quad t = - \sum_{capped} d_k / (\beta + u)
        """
        if self.needs_variation:
            assert link.variation is not None
            beta = link.variation
        else:
            beta = link.hyper["variation"][:, None]
        active = link.eligible_mask
        bound = compute_amplitude_bound(link)
        root_m = link.symbol_power.sqrt() * active
        share = (beta / (1.0 + beta)).clamp_min(MIN_SHARE)[..., None]
        noise = link.noise_variance[:, None, None]
        reach = bound * link.h.abs()  # sqrt(q)
        weakest = reach <= torch.where(active, reach, torch.inf).amin(-1, keepdim=True)
        with torch.no_grad():  # the set is piecewise constant: the last solve has all gradients
            capped = active
            for _ in range(STEPS):
                s, t = _solve(reach, root_m, share, noise, capped, active)
                capped = active & ((root_m * (reach * s - 1.0) < t) | weakest)
        s, t = _solve(reach, root_m, share, noise, capped, active)
        root_eta = s.clamp_min(TINY).reciprocal()
        gain = 1.0 + t / root_m.clamp_min(TINY)  # c of the uncapped
        amplitude = torch.minimum(bound, gain * root_eta / link.h.abs().clamp_min(FADED_SNR))
        amplitude = torch.where(active, amplitude, 0.0)
        return None, align_phases(link, amplitude, root_eta, active)


def _solve(
    reach: Tensor, root_m: Tensor, share: Tensor, noise: Tensor, capped: Tensor, active: Tensor
) -> tuple[Tensor, Tensor]:
    """Return s = 1 / sqrt(eta) and t [S, Q, 1] of a capped set [S, Q, K].

    Both derivatives vanish there. `reach` is sqrt(q) and `share` is beta / (1 + beta); the
    objective is divided by 1 + beta.
    """
    pull = torch.where(capped, root_m * reach, 0.0)  # d d_k / d s
    total = pull.sum(-1, keepdim=True)
    wanted = torch.where(capped, root_m, 0.0).sum(-1, keepdim=True)
    energy = pull.square().sum(-1, keepdim=True)
    signal = (pull * root_m).sum(-1, keepdim=True)
    free = (active & ~capped).sum(-1, keepdim=True)
    weight = (1.0 - share) / (share + (1.0 - share) * free)
    s = share * (signal + weight * total * wanted)
    s = s / (noise + share * energy + share * weight * total.square())
    return s, weight * (wanted - total * s)
