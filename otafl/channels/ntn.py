"""Path to a satellite or a high-altitude platform (non-terrestrial network, ntn).

The link budget is that of TR 38.811 6.6: free space, shadow fading, clutter loss without a line of
sight, atmospheric gases and scintillation. Fading is Rician with a line of sight, and Rayleigh
without. Line of sight, shadow fading and K-factor of a device are drawn once in a trial.

The Doppler shift of the path counts as compensated; a residual of r Hz is
`impairments.carrier_offset` = r / `bandwidth_hz`. The clock waits for the path's delay in both
directions in each slot.

References
----------
3GPP TR 38.811, "Study on New Radio to support non-terrestrial networks", 6.6 and 6.7.2.
ITU-R P.676-10, "Attenuation by atmospheric gases", Annex 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import compute_unit_gain, note_range
from otafl.channels.fading import Fading, draw_static_uniform
from otafl.channels.ntn_tables import TABLES
from otafl.channels.rayleigh import FlatFading, build_fading
from otafl.channels.rician import LineOfSight, RicianFading, compute_mean_amplitude
from otafl.channels.ris import FlatFadingSettings
from otafl.core.orbits import compute_doppler_hz, compute_slant_m
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import declare_purpose
from otafl.core.settings import Decibels
from otafl.core.units import LIGHT_M_PER_S, db_to_linear

PATH = declare_purpose("ntn_path", __name__)

SATELLITE_M, PLATFORM_M = (160e3, 35_786e3), (8e3, 50e3)
BANDS_HZ = {"S": (1.9e9, 4e9), "Ka": (19e9, 40e9)}
SPLIT_HZ = 6e9
"""Frequency from which the tables of the Ka band are used, and scintillation is tropospheric."""

IONOSPHERE_DB = 1.1
"""Peak-to-peak fluctuation at 4 GHz (TR 38.811, 6.6.6.1.4)."""


class Ntn(FlatFading):
    """Path to a satellite or platform; h [S, K, A, 1, 1] is complex with E|h|^2 = 1.

    Attributes
    ----------
    line_of_sight : Tensor, bool [S, K]
        Devices with a line of sight.
    k_factor : Tensor [S, K]
        K-factor, linear; 0 without a line of sight.
    loss_db : Tensor, float64 [S, K]
        Loss of the path, without antenna gains.
    """

    class Settings(FlatFadingSettings):
        name: Literal["ntn"] = "ntn"
        environment: Literal["dense_urban", "urban", "suburban"] = "suburban"
        """surroundings of the devices; suburban also for rural ones"""
        altitude_m: float = Field(600e3, ge=PLATFORM_M[0], le=SATELLITE_M[1])
        """altitude in metres, of a satellite from 160 km, or of a platform up to 50 km"""
        elevation_deg: float = Field(50.0, ge=10, le=90)
        """elevation in degrees; tables are those of the nearest multiple of 10"""
        carrier_hz: float = Field(2e9, gt=0, le=1e15)
        """carrier frequency in Hz, in the S band (1.9 to 4 GHz) or the Ka band (19 to 40 GHz)"""
        antenna_gain_dbi: Decibels = 30.0
        """gain of both antennas in dBi; 30 is a satellite's in the S band (TR 38.821, 6.1.1)"""
        low_latitude: bool = False
        """whether devices are within 20 degrees of the magnetic equator, where the ionosphere
        scintillates below 6 GHz"""

        def find_conflicts(self) -> Iterator[str]:
            yield from super().find_conflicts()
            if self.path_loss_db is not None:
                yield f"path_loss_db: got {self.path_loss_db:g}, but ntn has its own; leave it out"
            if self.ris is not None:
                yield "ris: the model has no surface; leave it out"

        def check(self, scenario: Any) -> Iterator[Problem]:
            if scenario.topology.name in ("cell_free", "graph"):
                text = f"the paths of ntn do not lead to '{scenario.topology.name}'; use star"
                yield make_problem(text, "topology", "channel")

        def list_notes(self, scenario: Any) -> Iterator[str]:
            ranges = {"altitude_m": (PLATFORM_M, SATELLITE_M), "carrier_hz": BANDS_HZ.values()}
            for key, valid in ranges.items():
                yield from note_range("ntn", key, getattr(self, key), valid, "3GPP TR 38.811")

        @property
        def is_physical(self) -> bool:
            return self.snr_db is None

        @property
        def doppler_hz(self) -> float:
            """Largest Doppler shift at this elevation; 0 for a platform or in GEO."""
            if not SATELLITE_M[0] <= self.altitude_m < SATELLITE_M[1]:
                return 0.0
            return compute_doppler_hz(self.altitude_m, self.elevation_deg, self.carrier_hz)

    settings: Settings

    def prepare(self) -> None:
        settings = self.settings
        column = math.floor(settings.elevation_deg / 10.0 + 0.5) - 1
        band = "S" if settings.carrier_hz < SPLIT_HZ else "Ka"

        def find(quantity: str) -> float:
            return TABLES[f"{settings.environment} {band} {quantity}"][column]

        drawn = draw_static_uniform(self.streams, self.devices, PATH, (3,))
        sight, shadow, spread = drawn.unbind(-1)
        seen = self.line_of_sight = sight < TABLES[f"{settings.environment} los"][column]
        std_db = torch.where(seen, find("sf_los"), find("sf_nlos"))
        clutter_db = torch.where(seen, 0.0, find("clutter"))
        k_db = find("k_mean") + find("k_std") * torch.special.ndtri(spread)
        self.k_factor = torch.where(seen, db_to_linear(k_db), 0.0).to(self.streams.dtype)
        self.loss_db = compute_clear_loss_db(settings, column) + clutter_db
        self.loss_db = self.loss_db + std_db * torch.special.ndtri(shadow)
        distance_m = compute_slant_m(settings.altitude_m, settings.elevation_deg)
        self.round_trip_s = 2.0 * distance_m / LIGHT_M_PER_S
        super().prepare()
        gain = db_to_linear(settings.antenna_gain_dbi - self.loss_db)
        unit = compute_unit_gain(gain, self.budget)
        self.gain = (gain / unit).to(self.budget.gain) * self.budget.gain

    def build_direct(self) -> Fading:
        return RicianFading(LineOfSight(self), build_fading(self), self.k_factor)

    @property
    def unit_mean_amplitude(self) -> Tensor:
        """E|h|, [S, K]."""
        return compute_mean_amplitude(self.k_factor)


def compute_clear_loss_db(settings: Ntn.Settings, column: int) -> float:
    r"""Compute the loss in dB of a path without shadow fading and clutter.

    Parameters
    ----------
    settings : Ntn.Settings
        Settings of the channel.
    column : int
        Column of the tables.

    Notes
    -----
    With frequencies in GHz and distances in metres,

    .. math::

        32.45 + 20 \log_{10} f + 20 \log_{10} d + \frac{A_{zenith}(f)}{\sin \alpha} + PL_s
        \quad (6.6\text{-}2, 6.6\text{-}8)
    """
    ghz = settings.carrier_hz / 1e9
    distance_m = compute_slant_m(settings.altitude_m, settings.elevation_deg)
    loss_db = 32.45 + 20.0 * math.log10(ghz) + 20.0 * math.log10(distance_m)
    zenith_db = float(np.interp(ghz, TABLES["zenith_ghz"], TABLES["zenith_db"]))
    loss_db += zenith_db / math.sin(math.radians(settings.elevation_deg))
    if settings.carrier_hz >= SPLIT_HZ:
        return loss_db + TABLES["troposphere"][column]
    if settings.low_latitude and settings.altitude_m >= SATELLITE_M[0]:
        loss_db += IONOSPHERE_DB * (ghz / 4.0) ** -1.5 / math.sqrt(2.0)  # eq. (6.6-13)
    return loss_db
