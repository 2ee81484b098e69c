"""Sum of plane waves, TR 38.901 7.5 steps 10 and 11 (eq. 7.5-22, 7.5-28, 7.5-29).

Antennas are vertical and omnidirectional, so a ray's field is only its random phase:

    h_a(t) = sum_m sqrt(P_m) exp(j (phi_m + 2 pi r_m . d_a / lambda + 2 pi v_m . x(t) / lambda))

Here r_m is the direction of arrival at the server, d_a the position of its antenna a, v_m the
direction of departure at the device, and x(t) the device's displacement (v t in the standard). Rays
keep angles, powers and delays; fading comes from their phases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.channels.fading import FADING
from otafl.channels.ofdm import (
    PHASE,
    OfdmSettings,
    Pairs,
    delay_rotations,
    rotations,
)
from otafl.core.rng import declare_purpose
from otafl.core.units import LIGHT_M_PER_S

HEADING = declare_purpose("heading", __name__)

RAY_OFFSETS = (0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551)
"""Offsets of a cluster's 20 rays, of both signs, at unit angle spread (TR 38.901, Table 7.5-3)."""

RAYS = 2 * len(RAY_OFFSETS)


class GeometricSettings(OfdmSettings):
    """Common keys of channels whose rays have angles, from which antenna correlation follows."""

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.antenna_correlation:
            yield (
                f"antenna_correlation: got {self.antenna_correlation:g}, but here the correlation "
                "of antennas follows from the angles of arrival; leave it out"
            )


@dataclass(frozen=True)
class Rays:
    """Rays of U x K links, P rays in L paths.

    Parameters
    ----------
    power : Tensor, float64 [U, K, P]
        Powers, which sum to one.
    path : tuple of int [L]
        Number of rays of each path, in order.
    delay_s : Tensor, float64 [U, K, L]
        Delays of the paths in seconds.
    azimuth, zenith : Tensor, float64 [U, K, P]
        Angles of arrival at the server, in the frame of its array, in radians.
    travel : Tensor, float64 [U, K, P, 3]
        Unit vectors of departure at the device.
    """

    power: Tensor
    path: tuple[int, ...]
    delay_s: Tensor
    azimuth: Tensor
    zenith: Tensor
    travel: Tensor


def unit_vector(azimuth: Tensor, zenith: Tensor) -> Tensor:
    """Compute unit vectors [..., 3] of angles [...] in radians (TR 38.901, eq. 7.1-6)."""
    x, y = zenith.sin() * azimuth.cos(), zenith.sin() * azimuth.sin()
    return torch.stack([x, y, zenith.cos()], -1)


def line_array(azimuth: Tensor, zenith: Tensor, antennas: int) -> Tensor:
    """Compute the phases of a line array in cycles.

    Parameters
    ----------
    azimuth, zenith : Tensor, float64 [...]
        Angles of arrival in radians.
    antennas : int
        Number of antennas A, half a wavelength apart along the y axis.

    Returns
    -------
    Tensor, float64 [..., A]
        Phases relative to the middle of the array.
    """
    place = torch.arange(antennas, dtype=torch.float64, device=azimuth.device)
    place = (place - (antennas - 1) / 2.0) / 2.0
    return (zenith.sin() * azimuth.sin())[..., None] * place


class PlaneWaves:
    """Fading of U x K links with given rays, by changes of their phases.

    Parameters
    ----------
    rays : Rays
        The rays.
    antennas : int
        Number of antennas of the server, A.
    frequency_hz : Tensor, float64 [U, F]
        Frequencies relative to the carrier.
    pairs : Pairs
        Random streams of the links.
    carrier_hz : float
        Carrier frequency.

    Attributes
    ----------
    numbers : int
        Real numbers in the largest temporary tensor of a draw.
    delay_s : Tensor, float64 [U, K, L]
        Delays of the paths.
    rotation : Tensor, complex [U, K, 1, L, F]
        Phasors of the delays at the groups.
    """

    def __init__(
        self, rays: Rays, antennas: int, frequency_hz: Tensor, pairs: Pairs, carrier_hz: float
    ) -> None:
        dtype = pairs.streams.dtype
        self._pairs, self._dtype = pairs, dtype
        # (number of paths, rays of each) of consecutive paths with as many rays
        self._shapes = [(len(list(alike)), size) for size, alike in itertools.groupby(rays.path)]
        self._wavelength = LIGHT_M_PER_S / carrier_hz
        self._travel = rays.travel
        self._start: Tensor | None = None
        steering = rotations(line_array(rays.azimuth, rays.zenith, antennas), dtype)
        amplitude = rays.power.sqrt().to(dtype)
        self._rays = (amplitude[..., None] * steering).movedim(-1, 2).contiguous()
        self.delay_s = rays.delay_s
        self.rotation = delay_rotations(rays.delay_s, frequency_hz[:, None], dtype)[:, :, None]
        self.numbers = 2 * max(self._rays.numel(), self.rotation[..., 0, :].numel() * antennas)

    def draw_taps(self, index: Tensor) -> Tensor:
        """Draw the amplitudes of the paths, [R, U, K, A, L], with new phases at the indices [R]."""
        turn = self._pairs.draw_uniform(FADING, index, (self._rays.shape[-1],))
        return self._sum_rays(rotations(turn, self._dtype))

    def compute_moved_taps(self, way_m: Tensor) -> Tensor:
        """Compute the amplitudes [R, U, K, A, L] of the paths after displacements [R, U, K, 3].

        Displacements are in metres, float64. Phases at the start are constant during a run.
        """
        if self._start is None:
            self._start = self._pairs.draw_static_uniform(PHASE, (self._rays.shape[-1],)).double()
        cycles = (self._travel * (way_m / self._wavelength)[..., None, :]).sum(-1)
        return self._sum_rays(rotations(self._start + cycles, self._dtype))

    def _sum_rays(self, phase: Tensor) -> Tensor:
        """Sum the rays of each path with phases [R, U, K, P], [R, U, K, A, L]."""
        waves = phase[..., None, :] * self._rays
        parts = waves.split([math.prod(shape) for shape in self._shapes], -1)
        sums = [
            one.unflatten(-1, shape).sum(-1) for one, shape in zip(parts, self._shapes, strict=True)
        ]
        return torch.cat(sums, -1)


def draw_velocities(speed_kmh: float | None, pairs: Pairs) -> Tensor | None:
    """Draw horizontal velocities [U, K, 3] in m/s, float64, in random directions.

    Returns None without a speed.
    """
    if speed_kmh is None:
        return None
    heading = 2.0 * math.pi * pairs.draw_static_uniform(HEADING, ()).double()
    level = torch.full_like(heading, math.pi / 2.0)
    return unit_vector(heading, level) * (speed_kmh / 3.6)
