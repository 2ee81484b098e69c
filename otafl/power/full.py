"""Full power, with the receive scaling of smallest mean squared error.

Every device transmits at its budget. The receive scaling minimises sum m (c - 1)^2 + N / eta, the
error of uncorrelated symbols.
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
    """Full power. Study: `studies/field/field.yaml`."""

    alone: ClassVar[bool] = True

    name: Literal["full"] = "full"

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute full power with the MMSE receive scaling of `compute_mmse_root_eta`.

        Notes
        -----
        .. math::

            |p_k| = \sqrt{P_k / m_k}
        """
        active = get_transmitter_mask(link)
        return None, align_with_mmse_scaling(link, compute_amplitude_bound(link) * active, active)
