"""Laws of a reconfigurable intelligent surface.

The channel is h = sqrt(1 - b) d + sqrt(r) times the sum of the paths of M elements, each of which
is the product of two Rayleigh fading paths.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench
from otafl.validation.channels import MOVING
from otafl.validation.checks import Check, check_mean, state_law

WU = "Wu, Zhang 2019"

ELEMENTS = 16
SIZES = (4, ELEMENTS, 64)
BLOCKED = 0.36
REFLECTED_DB = -10.0

DIRECT, R = math.sqrt(1.0 - BLOCKED), db_to_linear(REFLECTED_DB)
AMPLITUDE = math.sqrt(math.pi) / 2.0
"""Mean amplitude E|d| of a path."""

ROUNDS = 8


@functools.lru_cache(maxsize=16)
def _paths(
    bench: Bench,
    rule: str,
    devices: int,
    antennas: int = 1,
    neighbours: float = 0.0,
    bits: int = 0,
    elements: int = ELEMENTS,
    moving: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw h with a surface and d without one, [R, S, K, A] each.

    Trials are independent. The path from the surface to the server is equal in all rounds of a
    trial. `bits` is the number of bits of the known phases, which are exact if it is 0.
    """
    surface = {"elements": elements, "reflected_db": REFLECTED_DB, "blocked": BLOCKED, "rule": rule}
    fading = {"name": "rayleigh", "antennas": antennas, "antenna_correlation": neighbours}
    fading |= MOVING if moving else {}
    csi = {"name": "phase_feedback", "bits": bits} if bits else "perfect"
    point = {"csi": csi, "power": "full"}
    with_surface, without = (
        bench.build_rig(devices, bench.scale_size(256), point | {"channel": fading | {"ris": ris}})
        for ris in (surface, None)
    )
    return with_surface.draw_fading(ROUNDS)[..., 0, 0], without.draw_fading(ROUNDS)[..., 0, 0]


@state_law("surface random: mean power", f"{WU}; E|h|^2 = 1 - b + M r", "A={}", (1, 3))
def _random(bench: Bench, antennas: int) -> Iterator[Check]:
    h, _ = _paths(bench, "random", 4, antennas)
    yield check_mean(1.0 - BLOCKED + ELEMENTS * R, (np.abs(h) ** 2).mean((0, 2, 3)))


@state_law("surface align_weakest: power grows as M^2", f"{WU}, Proposition 2", "M={}", SIZES)
def _power(bench: Bench, elements: int) -> Iterator[Check]:
    """Compare E|h|^2 with 1 - b + r [M + M (M - 1) (pi/4)^2] and the product of both paths."""
    h, _ = _paths(bench, "align_weakest", 1, elements=elements)
    surface = R * (elements + elements * (elements - 1) * AMPLITUDE**4)
    both = 2.0 * DIRECT * AMPLITUDE * math.sqrt(R) * elements * AMPLITUDE**2
    yield check_mean(1.0 - BLOCKED + surface + both, (np.abs(h) ** 2).mean((0, 2, 3)))
