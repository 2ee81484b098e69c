"""Circular orbits against closed forms and a satellite that is followed second by second."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otafl.core.orbits import (
    EARTH_M,
    EARTH_RAD_PER_S,
    GRAVITY_M3_PER_S2,
    compute_angular_speed,
    compute_doppler_hz,
    compute_pass_s,
    compute_slant_m,
)

pytestmark = pytest.mark.exact


def test_distances() -> None:
    """Overhead and at the horizon by hand; 600 km at 30 degrees is TR 38.821's 1,075 km."""
    assert compute_slant_m(600e3, 90) == pytest.approx(600e3)
    assert compute_slant_m(600e3, 0) == pytest.approx(math.sqrt(600e3**2 + 2 * 600e3 * EARTH_M))
    assert compute_slant_m(600e3, 30) == pytest.approx(1075e3, abs=1e3)


def test_period_and_doppler() -> None:
    """96.5 minutes at 600 km, and 46 kHz at 2 GHz at the horizon."""
    assert 2 * math.pi / compute_angular_speed(600e3) == pytest.approx(5792.3, abs=0.1)
    speed = math.sqrt(GRAVITY_M3_PER_S2 / (EARTH_M + 600e3))
    law = 2e9 / 299_792_458 * speed * EARTH_M / (EARTH_M + 600e3) * math.cos(math.radians(10))
    assert compute_doppler_hz(600e3, 10, 2e9) == pytest.approx(law)
    assert compute_doppler_hz(600e3, 0, 2e9) == pytest.approx(46.1e3, abs=200)
    assert compute_doppler_hz(600e3, 90, 2e9) == pytest.approx(0, abs=1e-6)


def test_a_pass_overhead() -> None:
    """The part of the period in which the angle at the Earth's centre is below gamma."""
    gamma = math.acos(EARTH_M * math.cos(math.radians(10)) / (EARTH_M + 600e3)) - math.radians(10)
    period = 2 * math.pi / compute_angular_speed(600e3)
    assert compute_pass_s(600e3, 90, 90, 10) == pytest.approx(period * gamma / math.pi, rel=1e-12)


@pytest.mark.twin
@pytest.mark.parametrize("highest", [90.0, 40.0])
@pytest.mark.parametrize("inclination", [0.0, 180.0])
def test_a_pass_by_small_steps(highest: float, inclination: float) -> None:
    """A satellite over the equator, and a place at a latitude that sees it at most at `highest`;
    with these inclinations the ground turns along the orbit, and the closed form is exact."""
    radius, turn = EARTH_M + 600e3, EARTH_RAD_PER_S * math.cos(math.radians(inclination))
    top = math.radians(highest)
    latitude = math.acos(EARTH_M * math.cos(top) / radius) - top
    time = np.arange(-600, 600, 0.01)
    angle = (math.sqrt(GRAVITY_M3_PER_S2 / radius**3) - turn) * time
    satellite = radius * np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1)
    place = EARTH_M * np.array([math.cos(latitude), 0, math.sin(latitude)])
    way = satellite - place
    sine = way @ place / EARTH_M / np.linalg.norm(way, axis=1)
    assert math.degrees(math.asin(sine.max())) == pytest.approx(highest, abs=1e-2)
    seen = (sine > math.sin(math.radians(10))).sum() * 0.01
    assert compute_pass_s(600e3, inclination, highest, 10) == pytest.approx(seen, abs=0.02)
