"""Channel inversion behind a uniform-forcing combiner, at the gain of the weakest device.

With the combiner f and eta = min_k P_k |f^H h_k|^2 / m_k,

    p_k = sqrt(eta) (f^H h_k)^* / |f^H h_k|^2.

The receiver combines the antennas before a policy acts, so the policy is `ci` on f^H h, and with
one antenna it is `ci`. The combiner is that of uniform forcing, which maximises eta.

References
----------
Chen, Qin, Li 2018, "A Uniform-Forcing Transceiver Design for Over-the-Air Function Computation".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import PowerPolicy
from otafl.power.ci import invert_by_weakest


class MultiAntennaChannelInversion(PowerPolicy):
    """Channel inversion behind a uniform-forcing combiner."""

    receiver: ClassVar[str] = "uniform_forcing"
    example: ClassVar = {"channel.antennas": 4}

    name: Literal["multi_antenna_ci"] = "multi_antenna_ci"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        """Compute the inversion of `invert_by_weakest` on the scalar channels f^H h_k."""
        return None, invert_by_weakest(link)
