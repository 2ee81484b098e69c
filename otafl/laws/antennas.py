"""Laws of a line of sight: the correlation of antennas, and the correlation over time.

Antennas stand in a line, half a wavelength apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.channels.sionna_rng import keep_global_state
from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench
from otafl.laws.channels import MOVING, TR_38901, doppler_turns, draw_fading, jakes
from otafl.laws.checks import Check, check_mean, state_law

ANTENNAS = 4
DISTANCES = (1, 2, 3)
"""Distances of the compared antennas."""

K_FACTOR_DB = 10.0

LAGS = (1, 3)
"""Lags in rounds of a millisecond."""


@state_law("channel rician: antennas", "E h_a h_b^* = J0(pi d) K / (K + 1)")
def _line(bench: Bench) -> Iterator[Check]:
    """Compare antennas d half wavelengths apart, for a line of sight from any direction."""
    h = draw_array(bench, "rician", k_factor_db=K_FACTOR_DB)
    k = db_to_linear(K_FACTOR_DB)
    yield from compare_antennas(h, lambda d: k / (k + 1.0) * special.j0(math.pi * d))


@state_law("channel tdl-d: antennas", f"{TR_38901}, 7.7.2; J0(pi d) of the line of sight")
def _check_taps(bench: Bench) -> Iterator[Check]:
    """Compare antennas with the share of the power in the line of sight."""
    part = _line_power()
    yield from compare_antennas(
        draw_array(bench, "tdl-d"), lambda d: part * special.j0(math.pi * d)
    )


@state_law("channel tdl-d: autocorrelation", f"{TR_38901}, 7.7.2; line of sight at 0.7 f_D")
def _tapped_time(bench: Bench) -> Iterator[Check]:
    """Compare with P exp(2 pi j 0.7 f_D tau) of the line of sight and Jakes' J0 of the rest."""
    h = draw_fading(
        bench, 32, bench.scale_size(64), LAGS[-1] + 1, "tdl-d", subcarrier_groups=1, **MOVING
    )
    part = _line_power()
    for lag in LAGS:
        law = part * np.exp(1.4j * math.pi * doppler_turns(lag)) + (1.0 - part) * jakes(lag)
        product = (h[lag] * h[0].conj())[..., 0, 0, 0]
        yield check_mean(float(law.real), product.real, f"{lag} ms, real")
        yield check_mean(float(law.imag), product.imag, f"{lag} ms, imaginary")


def _line_power() -> float:
    """Return the share of TDL-D's power in the line of sight."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import TDL
    return float(TDL("D", 1.0, 3.5e9, precision="double", device="cpu").mean_power_los)


def draw_array(bench: Bench, name: str, **channel: Any) -> np.ndarray:
    """Draw h [R, S, K, A] of a channel that is flat over the band."""
    if name != "rician":
        channel["subcarrier_groups"] = 1
    return draw_fading(bench, 32, bench.scale_size(64), 2, name, antennas=ANTENNAS, **channel)[
        ..., 0, 0
    ]


def compare_antennas(h: np.ndarray, law: Callable[[int], complex]) -> Iterator[Check]:
    """Compare E h_a h_b^* of antennas d apart; devices and trials are independent."""
    for distance in DISTANCES:
        product = (h[..., distance:] * h[..., :-distance].conj()).mean((0, -1))
        wanted = complex(law(distance))
        yield check_mean(wanted.real, product.real, f"distance {distance}, real")
        yield check_mean(wanted.imag, product.imag, f"distance {distance}, imaginary")


def double_blocks(one: Any) -> None:
    """Make coherence blocks twice as long."""
    name = "_per_block" if hasattr(one, "_per_block") else "_block_s"
    setattr(one, name, 2 * getattr(one, name))
