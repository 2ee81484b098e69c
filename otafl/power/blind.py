"""Send without channel knowledge; many antennas at the server average the phases out.

Devices know nothing of their channels and send with one real amplitude sqrt(E), E = min_k P_k /
m_k; the server, with A antennas, combines with the sum of channels:

    estimate = Re( sum_a conj(sum_k h_ka) y_a ) / (K A sqrt(E) beta)

With the unit combiner f = sum_k h_k / |sum_k h_k| of `receiver: mrc` the sum over the devices of
f^H h_k is |sum_k h_k|, so sqrt(eta) = A beta sqrt(E) / |sum_k h_k|. beta is the mean large-scale
gain of the devices on air, which makes the estimate unbiased where all have it. Fading must be
independent over devices and of mean zero: then interference of the devices with each other
falls as 1/A.

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
from otafl.power.scalars import MAX_SCALE, TINY, compute_reference_power, get_transmitter_mask


class Blind(PowerPolicy):
    receiver: ClassVar[str] = "mrc"
    example: ClassVar = {"channel.antennas": 64}

    name: Literal["blind"] = "blind"

    def check(self, scenario: Any) -> Iterable[Problem]:
        receiver = scenario.receiver.name
        if receiver not in ("auto", self.receiver):
            yield make_problem(
                f"'{receiver}' does not go with power: 'blind', whose devices do not know their "
                f"phases; auto or {self.receiver} would do",
                "receiver",
                "power",
            )

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        active = get_transmitter_mask(link)
        sends = active.to(link.gain.dtype)
        beta = (link.gain[:, None] * sends).sum(-1) / sends.sum(-1).clamp_min(1.0)
        amplitude = compute_reference_power(link, "max").rsqrt()  # sqrt(E)
        total = (link.h * active).sum(-1).abs()
        root_eta = link.num_antennas * beta * amplitude[..., 0] / total.clamp_min(TINY)
        root_eta = torch.where(total > 0, root_eta.clamp_max(MAX_SCALE), 1.0)  # nobody sends
        p = torch.where(active, amplitude, 0.0).to(link.h.dtype)
        return None, Coefficients(p, root_eta.square(), active)
