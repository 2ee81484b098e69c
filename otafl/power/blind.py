"""Transmission without channel knowledge; many antennas at the server average the phases out.

Devices do not know their channels, and all send with the real amplitude sqrt(E), E = min_k P_k /
m_k. The server has A antennas and combines them with the sum of the channels:

    estimate = Re( sum_a conj(sum_k h_ka) y_a ) / (K A sqrt(E) beta)

With the unit combiner f = sum_k h_k / |sum_k h_k| of `receiver: mrc`, the sum of f^H h_k over the
devices is |sum_k h_k|, so sqrt(eta) = A beta sqrt(E) / |sum_k h_k|. beta is the mean large-scale
gain of the devices on air, which makes the estimate unbiased if all have this gain. Fading must be
independent over devices and have mean zero. Then the interference between devices decreases as 1/A.

References
----------
Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning", eq. 12.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Link
from otafl.core.problems import Problem, make_problem
from otafl.power.base import PowerPolicy
from otafl.power.scalars import TINY, compute_reference_power, get_transmitter_mask


class Blind(PowerPolicy):
    """Transmission without channel knowledge at the devices."""

    receiver: ClassVar[str] = "mrc"
    example: ClassVar = {"channel.antennas": 64}

    name: Literal["blind"] = "blind"

    def check(self, scenario: Any) -> Iterable[Problem]:
        receiver = scenario.receiver.name
        if receiver not in ("auto", self.receiver):
            yield make_problem(
                f"'{receiver}' does not go with power: 'blind', whose devices do not know their "
                f"phases; use auto or {self.receiver}",
                "receiver",
                "power",
            )

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Compute equal amplitudes, and the receive scaling of eq. 12.

        Notes
        -----
        .. math::

            p_k = \sqrt{E}, \quad \sqrt{\eta} = A \beta \sqrt{E} / \left| \sum_k h_k \right|
        """
        active = get_transmitter_mask(link)
        sends = active.to(link.gain.dtype)
        beta = (link.gain[:, None] * sends).sum(-1) / sends.sum(-1).clamp_min(1.0)
        amplitude = compute_reference_power(link, "max").rsqrt()  # sqrt(E)
        total = (link.h * active).sum(-1).abs()
        root_eta = link.num_antennas * beta * amplitude[..., 0] / total.clamp_min(TINY)
        root_eta = torch.where(total > 0, root_eta, 1.0)  # all are silent
        p = torch.where(active, amplitude, 0.0).to(amplitude.dtype.to_complex())
        return None, Coefficients(p, root_eta.square(), active)
