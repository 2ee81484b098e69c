"""Geometry of a circular orbit over a spherical Earth, seen from the ground.

References
----------
3GPP TR 38.811, "Study on New Radio to support non-terrestrial networks", 5.3.4 and 6.6.2.
Ali, Al-Dhahir, Hershey 1998, "Doppler Characterization for LEO Satellites", IEEE Transactions on
    Communications 46(3).
"""

from __future__ import annotations

import math

from otafl.core.units import LIGHT_M_PER_S

EARTH_M = 6.371e6
"""Radius of the Earth R (TR 38.811, 6.6.2)."""

GRAVITY_M3_PER_S2 = 3.986004418e14
"""Gravitational constant times the mass of the Earth, mu."""

EARTH_RAD_PER_S = 7.2921159e-5
"""Angular velocity of the Earth."""


def compute_slant_m(altitude_m: float, elevation_deg: float) -> float:
    r"""Compute the distance of a satellite from its altitude and elevation.

    Notes
    -----
    .. math::

        d = \sqrt{R^2 \sin^2 \alpha + h^2 + 2 h R} - R \sin \alpha \quad (6.6\text{-}3)
    """
    up = EARTH_M * math.sin(math.radians(elevation_deg))
    return math.sqrt(up**2 + altitude_m**2 + 2.0 * altitude_m * EARTH_M) - up


def compute_angular_speed(altitude_m: float) -> float:
    """Compute the angular speed sqrt(mu / r^3) in rad/s of a circular orbit."""
    return math.sqrt(GRAVITY_M3_PER_S2 / (EARTH_M + altitude_m) ** 3)


def compute_doppler_hz(altitude_m: float, elevation_deg: float, carrier_hz: float) -> float:
    """Compute the Doppler shift f / c w R cos(alpha) of a satellite that approaches (5.3.4.3)."""
    speed = compute_angular_speed(altitude_m) * EARTH_M * math.cos(math.radians(elevation_deg))
    return carrier_hz / LIGHT_M_PER_S * speed


def compute_pass_s(
    altitude_m: float, inclination_deg: float, highest_deg: float, lowest_deg: float
) -> float:
    r"""Compute the duration of a pass above an elevation.

    Parameters
    ----------
    altitude_m, inclination_deg : float
        Altitude and inclination of the orbit.
    highest_deg, lowest_deg : float
        Elevation at the middle and at the ends of the pass.

    Returns
    -------
    float
        Seconds.

    Notes
    -----
    With the Earth-centred angle gamma(alpha) = acos(R cos(alpha) / r) - alpha between the place
    and the point below the satellite,

    .. math::

        \tau = \frac{2}{\omega - \omega_E \cos i}
        \arccos \frac{\cos \gamma(\alpha_{low})}{\cos \gamma(\alpha_{high})}
    """
    speed = compute_relative_speed(altitude_m, inclination_deg)
    low, high = (
        math.acos(EARTH_M * math.cos(one) / (EARTH_M + altitude_m)) - one
        for one in (math.radians(lowest_deg), math.radians(highest_deg))
    )
    return 2.0 / abs(speed) * math.acos(math.cos(low) / math.cos(high))


def compute_relative_speed(altitude_m: float, inclination_deg: float) -> float:
    """Compute the angular speed w - w_E cos(i) over the rotating ground in rad/s."""
    turning = EARTH_RAD_PER_S * math.cos(math.radians(inclination_deg))
    return compute_angular_speed(altitude_m) - turning
