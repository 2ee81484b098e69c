"""Minimise the mean squared error of each fading state under peak power.

Devices of low quality q_k = P_k g_k / m_k send at full power, the others invert:
c_k = min(1, sqrt(q_k / eta)). With q ascending and

    sqrt(eta_i) = (N + sum_{j<=i} m_j q_j) / sum_{j<=i} m_j sqrt(q_j)

the receive scaling is eta = min_i eta_i; the i that attains it is the number of devices at full
power.

References
----------
Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air Computation in Fading Channels",
    static channels.
"""

from __future__ import annotations

from typing import Literal

import torch

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import PowerPolicy
from otafl.power.scalars import align_phases, compute_amplitude_bound, inversion, senders, threshold


class CaoStatic(PowerPolicy):
    name: Literal["cao_static"] = "cao_static"

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        bound = compute_amplitude_bound(link)
        there = senders(link)
        reach = bound * link.h.abs()  # sqrt(q)
        root_eta = threshold(reach, link.power, link.noise[:, None, None], there)
        amplitude = torch.minimum(bound, inversion(root_eta, link))
        return None, align_phases(link, amplitude, root_eta, there)
