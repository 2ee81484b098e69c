"""Laws of devices that follow the time of day. Each test's false-alarm level over all that it
compares is 1e-4; seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from otafl.devices.availability.diurnal import DiurnalAvailability


@pytest.mark.exact
def test_what_a_day_cannot_be() -> None:
    with pytest.raises(ValidationError, match=r"below 1; with mean: 0.6, use less than 0.4"):
        DiurnalAvailability.Settings(mean=0.6, amplitude=0.4)
    most = 0.3 / math.sqrt(1 + (2 * math.pi * 21600 / 86400) ** 2)
    DiurnalAvailability.Settings(mean=0.3, amplitude=most * 0.999, mean_session_s=21600)
    with pytest.raises(ValidationError, match=f"at most {most:.4g}"):
        DiurnalAvailability.Settings(mean=0.3, amplitude=most * 1.001, mean_session_s=21600)
