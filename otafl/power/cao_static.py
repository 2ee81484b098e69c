"""Smallest mean squared error of each fading state under peak power.

Devices of low quality q_k = P_k g_k / m_k transmit at full power, and the others invert their
channel: c_k = min(1, sqrt(q_k / eta)). With q ascending and

    sqrt(eta_i) = (N + sum_{j<=i} m_j q_j) / sum_{j<=i} m_j sqrt(q_j),

the receive scaling is eta = min_i eta_i. The minimising i is the number of devices at full power.

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
from otafl.power.scalars import (
    align_phases,
    compute_amplitude_bound,
    compute_threshold,
    get_transmitter_mask,
    invert_channel,
)


class CaoStatic(PowerPolicy):
    """Optimal power control of each fading state. Study: `studies/reuse/reuse.yaml`."""

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
        there = get_transmitter_mask(link)
        reach = bound * link.h.abs()  # sqrt(q)
        root_eta = compute_threshold(
            reach, link.symbol_power, link.noise_variance[:, None, None], there
        )
        amplitude = torch.minimum(bound, invert_channel(root_eta, link))
        return None, align_phases(link, amplitude, root_eta, there)
