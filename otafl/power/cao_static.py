"""The transmit and receive scalars of least mean squared error for one fading state under peak
power (Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air Computation in Fading
Channels", static channels). Devices of low quality q_k = P_k g_k / m_k send at full power, the
others invert: c_k = min(1, sqrt(q_k / eta)). With q ascending and

    sqrt(eta_i) = (N + sum_{j<=i} m_j q_j) / sum_{j<=i} m_j sqrt(q_j)

the receive scaling is eta = min_i eta_i; the i that attains it is the number of devices at full
power."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import CaoStaticConfig
from otafl.power.scalars import amplitude_bound, cophase, inversion, senders, threshold


class CaoStatic:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: CaoStaticConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        bound = amplitude_bound(link)
        there = senders(link)
        reach = bound * link.h.abs()  # sqrt(q)
        root_eta = threshold(reach, link.power, link.noise[:, None, None], there)
        amplitude = torch.minimum(bound, inversion(root_eta, link))
        p = cophase(amplitude, link.h)
        return None, Coefficients(p, root_eta[..., 0].square(), there)
