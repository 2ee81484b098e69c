"""Add up plane waves, TR 38.901 7.5 steps 10 and 11 (eq. 7.5-22, 7.5-28, 7.5-29).

Antennas are vertical and omnidirectional: a ray's field is its random phase alone, so

    h_a(t) = sum_m sqrt(P_m) exp(j (phi_m + 2 pi r_m . d_a / lambda + 2 pi v_m . x(t) / lambda))

with r_m the direction of arrival at the server's antenna a at d_a, v_m that of departure at the
device, and x(t) the device's way so far (v t in the standard). Rays keep angles, powers and
delays; what fades are their phases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.channels.fading import FADING
from otafl.channels.jakes import LIGHT_M_PER_S
from otafl.channels.ofdm import (
    PHASE,
    OfdmSettings,
    Pairs,
    delay_rotations,
    frequency_response,
    rotations,
)
from otafl.core.rng import declare_purpose

HEADING = declare_purpose("heading", __name__)

RAY_OFFSETS = (0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551)
"""TR 38.901 Table 7.5-3: offsets of a cluster's 20 rays, one of each sign, at unit angle spread."""

RAYS = 2 * len(RAY_OFFSETS)


class GeometricSettings(OfdmSettings):
    """The section of a channel whose rays have angles, which correlate the antennas, may hold these
    keys."""

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.antenna_correlation:
            yield (
                f"antenna_correlation {self.antenna_correlation:g} has no meaning here: the "
                "correlation of antennas follows from the angles of arrival; leave it out"
            )


@dataclass(frozen=True)
class Rays:
    """Hold the rays of U x K links, P of them in L paths; float64, angles in radians.

    power: [U, K, P], sums to one. path: rays of each path, in order. delay_s: [U, K, L]. azimuth,
    zenith: [U, K, P] of arrival at the server, in the frame of its array. travel: [U, K, P, 3]
    unit vectors at the device.
    """

    power: Tensor
    path: tuple[int, ...]
    delay_s: Tensor
    azimuth: Tensor
    zenith: Tensor
    travel: Tensor


def unit_vector(azimuth: Tensor, zenith: Tensor) -> Tensor:
    """Return unit vectors [..., 3], eq. 7.1-6."""
    x, y = zenith.sin() * azimuth.cos(), zenith.sin() * azimuth.sin()
    return torch.stack([x, y, zenith.cos()], -1)


def line_array(azimuth: Tensor, zenith: Tensor, antennas: int) -> Tensor:
    """Return phases [..., A] in cycles at A antennas half a wavelength apart along the y axis,
    about their middle."""
    place = torch.arange(antennas, dtype=torch.float64, device=azimuth.device)
    place = (place - (antennas - 1) / 2.0) / 2.0
    return (zenith.sin() * azimuth.sin())[..., None] * place


class PlaneWaves:
    """Draw the fading of U x K links with given rays, as the phases of these change.

    numbers: real numbers of the largest temporary of a draw. delay_s: [U, K, L] of the paths.
    """

    def __init__(
        self, rays: Rays, antennas: int, frequency_hz: Tensor, pairs: Pairs, carrier_hz: float
    ) -> None:
        dtype = pairs.streams.dtype
        self._pairs, self._dtype, self._path = pairs, dtype, list(rays.path)
        self._wavelength = LIGHT_M_PER_S / carrier_hz
        self._travel = rays.travel
        self._start: Tensor | None = None
        steering = rotations(line_array(rays.azimuth, rays.zenith, antennas), dtype)
        amplitude = rays.power.sqrt().to(dtype)
        self._rays = (amplitude[..., None] * steering).movedim(-1, 2).contiguous()
        self.delay_s = rays.delay_s
        self._rotation = delay_rotations(rays.delay_s, frequency_hz[:, None], dtype)[:, :, None]
        self.numbers = 2 * max(self._rays.numel(), self._rotation[..., 0, :].numel() * antennas)

    def draw_h(self, index: Tensor) -> Tensor:
        """Draw h [R, U, K, A, F] with phases of their own at each of the indices [R]."""
        return self.compute_response(self.draw_taps(index))

    def draw_taps(self, index: Tensor) -> Tensor:
        """Draw the paths' amplitudes [R, U, K, A, L] of the same."""
        turn = self._pairs.draw_uniform(FADING, index, (self._rays.shape[-1],))
        return self._sum_rays(rotations(turn, self._dtype))

    def compute_moved_h(self, way_m: Tensor) -> Tensor:
        """Return h [R, U, K, A, F] after ways [R, U, K, 3] in metres, float64, with the run's
        phases."""
        return self.compute_response(self.compute_moved_taps(way_m))

    def compute_moved_taps(self, way_m: Tensor) -> Tensor:
        """Return the paths' amplitudes [R, U, K, A, L] of the same."""
        if self._start is None:
            self._start = self._pairs.draw_static_uniform(PHASE, (self._rays.shape[-1],)).double()
        cycles = (self._travel * (way_m / self._wavelength)[..., None, :]).sum(-1)
        return self._sum_rays(rotations(self._start + cycles, self._dtype))

    def compute_response(self, taps: Tensor) -> Tensor:
        """Return h [R, U, K, A, F] of the paths' amplitudes [R, U, K, A, L]."""
        return frequency_response(taps, self._rotation)

    def _sum_rays(self, phase: Tensor) -> Tensor:
        """Return [R, U, K, A, L], the rays of each path with phases [R, U, K, P] added up."""
        waves = phase[..., None, :] * self._rays
        return torch.stack([path.sum(-1) for path in waves.split(self._path, -1)], -1)


def draw_velocities(speed_kmh: float | None, pairs: Pairs) -> Tensor | None:
    """Draw [U, K, 3] m/s, float64: horizontal velocities at this speed in random directions; None
    without a speed."""
    if speed_kmh is None:
        return None
    heading = 2.0 * math.pi * pairs.draw_static_uniform(HEADING, ()).double()
    level = torch.full_like(heading, math.pi / 2.0)
    return unit_vector(heading, level) * (speed_kmh / 3.6)
