"""Policies with equal power of all devices: with and without compensation of the phase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import MIN_SNR, ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.power.base import (
    GAMMA,
    REFERENCE,
    TINY,
    Constraint,
    Pair,
    PowerPolicy,
    Reference,
    compute_fixed_power,
    compute_reference_power,
    cophase,
)

MIN_GAIN = 0.03
"""Smallest mean gain over the root mean square of |h|; averages over drawn states are too noisy to
tell a smaller one from zero."""


class Gbma(PowerPolicy):
    """Equal power of all devices, with compensation of only the phase (GBMA).

    All devices send with p_k = sqrt(E) exp(-j angle h_k), and the effective gains |h_k| average out
    over devices and rounds. The receive scaling uses the mean gain E|h| that remains with the
    estimated phases: an estimation error of variance v reduces it by 1/sqrt(1 + v) under Rayleigh
    fading, and a delayed estimate of correlation rho by the factor rho. If it is negative, the
    devices invert their phase, and its magnitude counts.

    Study: `studies/physical_layer/fashion_mnist_gbma_ci.yaml`.

    References
    ----------
    Sery, Cohen 2020, "On Analog Gradient Descent Learning over Multiple Access Fading Channels".
    Xue, Lau, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
        Aggregation", eq. 29.
    """

    name: Literal["gbma"] = "gbma"
    gain_target: Literal["auto", "amplitude", "energy"] = "auto"
    """receive scaling that makes the mean unbiased: E|h| for a linear sum (amplitude), sqrt(E|h|^2)
    for a product of two sums (energy); auto chooses by the payload"""
    reference: Reference = Field("max", description=REFERENCE)
    gamma: float | None = Field(None, gt=0, description=GAMMA)

    @property
    def power_constraint(self) -> Constraint:
        if self.gamma is not None:
            return "none"
        return "peak" if self.reference == "max" else "average"

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Pair:
        """Return (E|h|)^2, with the sign of the mean gain, and E|h|^2, [S, 1] each.

        They are means over the devices of a trial that have a channel, and 1 if none has.

        Raises
        ------
        UserError
            If the mean gain is about zero, because the estimates do not contain the phase.
        """
        power = statistics.mean_power()
        there = (statistics.budget * power >= MIN_SNR).to(power.dtype)
        count = there.sum(1, keepdim=True)

        def mean(values: Tensor) -> Tensor:
            total = (values * there).sum(1, keepdim=True) / count.clamp_min(1.0)
            return total.where(count > 0, 1.0)

        gain, square = mean(statistics.mean_amplitude()), mean(power)
        share = float((gain.abs() / square.sqrt()).min())
        if share < MIN_GAIN:
            raise UserError(
                "power: 'gbma' divides by the mean gain after phase compensation; expected at "
                f"least {MIN_GAIN} of the channel's root mean square, got {share:.2g}; use a csi "
                "that knows the phase (csi: delay needs channel.speed_kmh and a short "
                "channel.round_interval_s)"
            )
        return gain * gain.abs(), square

    def compute_coefficients(self, state: Pair, link: Link) -> tuple[Pair, Coefficients]:
        r"""Compute equal amplitudes with compensated phases.

        Notes
        -----
        .. math::

            p_k = \pm \sqrt{E} e^{-j \angle h_k}, \quad \eta = E (E|h|)^2

        The sign is that of the mean gain. For a product of two sums the receive scaling is E times
        the mean of |h|^2.
        """
        if self.gamma is None:
            energy = compute_reference_power(link, self.reference).reciprocal()  # [S, Q, 1]
        else:
            energy = compute_fixed_power(link, self.gamma).expand(-1, link.h.shape[1], -1)
        linear = link.is_linear
        if self.gain_target != "auto":
            linear = self.gain_target == "amplitude"
        active = link.eligible_mask
        p = cophase(energy.sqrt() * active * state[0].sign()[..., None], link.h)
        eta = energy[..., 0] * (state[0].abs() if linear else state[1])
        return state, Coefficients(p, eta, active)


class Blind(PowerPolicy):
    """Transmission without channel knowledge; many antennas at the server average the phases out.

    Devices do not know their channels, and all send with the real amplitude sqrt(E), E = min_k P_k
    / m_k. The server has A antennas and combines them with the sum of the channels:

        estimate = Re( sum_a conj(sum_k h_ka) y_a ) / (K A sqrt(E) beta)

    With the unit combiner f = sum_k h_k / |sum_k h_k| of `receiver: mrc`, the sum of f^H h_k over
    the devices is |sum_k h_k|, so sqrt(eta) = A beta sqrt(E) / |sum_k h_k|. beta is the mean
    large-scale gain of the devices on air, which makes the estimate unbiased if all have this gain.
    Fading must be independent over devices and have mean zero. Then the interference between
    devices decreases as 1/A.

    References
    ----------
    Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning", eq. 12.
    """

    receiver: ClassVar[str] = "mrc"
    example: ClassVar = {"channel.antennas": 64}

    name: Literal["blind"] = "blind"

    def check(self, scenario: Any) -> Iterable[Problem]:
        receiver = scenario.receiver.name
        if receiver not in ("auto", self.receiver):
            yield make_problem(
                f"'{receiver}' does not go with power: 'blind', whose devices do not know their "
                f"phases; use auto or {self.receiver}",
                "receiver",
                "power",
            )

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute equal amplitudes, and the receive scaling of eq. 12.

        Notes
        -----
        .. math::

            p_k = \sqrt{E}, \quad \sqrt{\eta} = A \beta \sqrt{E} / \left| \sum_k h_k \right|
        """
        active = link.eligible_mask
        sends = active.to(link.gain.dtype)
        beta = (link.gain[:, None] * sends).sum(-1) / sends.sum(-1).clamp_min(1.0)
        amplitude = compute_reference_power(link, "max").rsqrt()  # sqrt(E)
        total = (link.h * active).sum(-1).abs()
        root_eta = link.num_antennas * beta * amplitude[..., 0] / total.clamp_min(TINY)
        root_eta = torch.where(total > 0, root_eta, 1.0)  # all are silent
        p = torch.where(active, amplitude, 0.0).to(amplitude.dtype.to_complex())
        return None, Coefficients(p, root_eta.square(), active)
