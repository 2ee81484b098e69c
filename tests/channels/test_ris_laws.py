"""The law of a reflecting surface of moving devices; laws of resting ones are in `otafl validate`.
The false-alarm level is 1e-4.

A mutation that makes it fail: one stream for the surface and the direct path.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.fading_laws import MOVING, assert_mean, h_of, rayleigh

from otafl.channels.ris import RisSettings

pytestmark = pytest.mark.law


def test_the_surface_fades_apart_from_the_direct_path() -> None:
    """One element: E |d|^2 |r g|^2 = 1, the mean over 40 devices in each of 500 trials."""
    ris = RisSettings(elements=1, reflected_db=0.0, rule="random")
    d = h_of(rayleigh(40, range(500), **MOVING), [3])
    reflected = h_of(rayleigh(40, range(500), ris=ris, **MOVING), [3]) - d
    assert_mean((np.abs(d) ** 2 * np.abs(reflected) ** 2).mean((0, 2, 3, 4)), 1.0)
