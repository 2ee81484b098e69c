"""Compensation of a fraction of the path loss, as in open-loop power control of 3GPP.

In dB, transmit power = min(P_max, P_0 + alpha PL), without the terms of the closed loop and the
transport format. PL is only the large-scale gain, so fading averages out. Phases are
pre-compensated, because signals must add up, and the receive scaling has the smallest mean squared
error, as in `full`.

References
----------
3GPP TS 38.213, section 7.1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otafl.core.contracts import Coefficients, Link
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.power.base import PowerPolicy
from otafl.power.scalars import (
    align_with_mmse_scaling,
    compute_amplitude_bound,
    get_transmitter_mask,
)


class OpenLoop(PowerPolicy):
    """Open-loop power control with fractional path-loss compensation."""

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
        active = get_transmitter_mask(link)
        return None, align_with_mmse_scaling(
            link, compute_amplitude_bound(link) * share * active, active
        )
