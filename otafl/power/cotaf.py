"""COTAF, time-varying precoding: the common scale follows the updates' power, alpha_t = min_k P_k /
m_k, and devices whose amplitude is at least h_min invert down to it, p_k = sqrt(alpha_t) h_min /
h_k; the others are silent (Sery, Shlezinger, Cohen, Eldar 2021, "Over-the-Air Federated Learning
from Heterogeneous Data", eq. 8 to 10 and the fading case). As updates shrink, alpha_t grows and
the noise N / (K_a^2 alpha_t h_min^2) of the mean over the K_a devices on air falls with them.
m_k is that of this round's updates, where the paper bounds its expectation; it is side
information."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import CotafConfig
from otafl.power.scalars import cophase, inversion, reference_gain, reference_power, senders


class Cotaf:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = True
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: CotafConfig) -> None:
        self._relative = config.relative

    def prepare(self, statistics: Statistics, hyper: Hyper) -> Tensor:
        """h_min [S]."""
        return hyper["h_min"] * reference_gain(statistics, self._relative).sqrt()

    def coefficients(self, state: Tensor, link: Link) -> tuple[Tensor, Coefficients]:
        least = state[:, None, None]
        active = senders(link) & (link.h.abs() >= least)
        root_eta = reference_power(link, "max").rsqrt() * least
        amplitude = torch.where(active, inversion(root_eta, link), 0.0)
        return state, Coefficients(cophase(amplitude, link.h), root_eta[..., 0].square(), active)
