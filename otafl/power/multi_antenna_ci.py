"""Invert the channel behind a uniform-forcing receive vector, at the gain of the weakest device.

p_k = sqrt(eta) (f^H h_k)^* / |f^H h_k|^2 with eta = min_k P_k |f^H h_k|^2 / m_k. The receiver has
combined the antennas before a policy acts, so this is `ci` on f^H h, and with one antenna it is
`ci`; its f is that of uniform forcing, which makes eta as large as it finds.

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
    receiver: ClassVar[str] = "uniform_forcing"
    example: ClassVar = {"channel.antennas": 4}

    name: Literal["multi_antenna_ci"] = "multi_antenna_ci"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        return None, invert_by_weakest(link)
