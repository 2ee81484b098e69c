"""Send at full power, and scale what is received for the least mean squared error.

Every device transmits at its budget, and the receive scalar minimises sum m (c - 1)^2 + N / eta,
the error of uncorrelated symbols.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import PowerPolicy
from otafl.power.scalars import (
    align_with_mmse_scaling,
    compute_amplitude_bound,
    get_transmitter_mask,
)


class Full(PowerPolicy):
    alone: ClassVar[bool] = True

    name: Literal["full"] = "full"

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        active = get_transmitter_mask(link)
        return None, align_with_mmse_scaling(link, compute_amplitude_bound(link) * active, active)
