"""Send with the same amplitude |p| whatever the symbols are, within the budget."""

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


class FixedAmplitude(PowerPolicy):
    scale_invariant: ClassVar[bool] = False
    alone: ClassVar[bool] = True
    example_without_noise: ClassVar[Mapping[str, Any]] = {"level_db": 200.0}

    name: Literal["fixed_amplitude"] = "fixed_amplitude"
    level_db: Decibels = declare_stackable(0.0, description="|p|^2 in dB")

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        level = db_to_linear(link.hyper["level_db"]).sqrt()[:, None, None]
        active = get_transmitter_mask(link)
        return None, align_with_mmse_scaling(
            link, compute_amplitude_bound(link).minimum(level) * active, active
        )
