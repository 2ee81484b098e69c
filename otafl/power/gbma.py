"""GBMA, gradient-based multiple access: equal power E and phase pre-compensation only, p_k =
sqrt(E) exp(-j angle h_k); the superposition's gains |h_k| average out over devices and rounds
(Sery and Cohen 2020, "On Analog Gradient Descent Learning over Multiple Access Fading Channels";
FedRLR eq. 29). E|h| stands for the mean gain that is left with the phases that devices believe in:
an estimation error of variance v lowers it by 1/sqrt(1 + v) under Rayleigh fading."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import GbmaConfig
from otafl.power.scalars import cophase, fixed_power, reference_power


class Gbma:
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: GbmaConfig) -> None:
        self.config = config
        self.constraint: Literal["peak", "average", "none"] = (
            "peak" if config.reference == "max" else "average"
        )
        if config.gamma is not None:
            self.constraint = "none"

    def prepare(self, statistics: Statistics, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """(E|h|)^2 and E|h|^2, means over the devices of a trial, [S, 1]."""
        amplitude = statistics.mean_amplitude().mean(1, keepdim=True).square()
        return amplitude, statistics.mean_power().mean(1, keepdim=True)

    def coefficients(
        self, state: tuple[Tensor, Tensor], link: Link
    ) -> tuple[tuple[Tensor, Tensor], Coefficients]:
        if self.config.gamma is None:
            energy = reference_power(link, self.config.reference).reciprocal()  # [S, Q, 1]
        else:
            energy = fixed_power(link, self.config.gamma).expand(-1, link.h.shape[1], -1)
        linear = link.linear
        if self.config.gain_target != "auto":
            linear = self.config.gain_target == "amplitude"
        active = link.sends[:, None].expand(link.h.shape)
        p = cophase(energy.sqrt() * active, link.h)
        eta = energy[..., 0] * (state[0] if linear else state[1])
        return state, Coefficients(p, eta, active)
