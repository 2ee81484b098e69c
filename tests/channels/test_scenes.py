"""The traced places that come along, by what can be checked of them without a ray tracer."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from otafl.channels.trace import SCENES, Trace

pytestmark = pytest.mark.exact

FILES = sorted(SCENES.glob("*.npz"))
C = 299_792_458.0


def read(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(SCENES / f"{name}.npz"))


def test_each_is_known_by_name_and_small() -> None:
    names = [file.stem for file in FILES]
    known = get_args(get_args(Trace.Settings.model_fields["scene"].annotation)[0])
    assert names == sorted(known)
    for file in FILES:
        assert file.stat().st_size <= 2**20
        place = read(file.stem)
        rounds, devices, antennas, _ = place["a"].shape
        assert rounds >= 8
        assert devices >= 64
        assert antennas == 8
        assert "OpenStreetMap contributors, ODbL" in str(place["attribution"])


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_what_is_in_sight_is_heard_as_by_friis(name: str) -> None:
    """The first path has the amplitude lambda / (4 pi d), to what is left by rounding: 2^-10 of a
    real or imaginary part, and a centimetre of a place."""
    place = read(name)
    a = place["a"]
    there = (np.abs(a) > 0).any(2)
    first = np.where(there, place["tau_s"], np.inf).argmin(2)
    amplitude = np.take_along_axis(np.abs(a), first[:, :, None, None], 3)[..., 0]
    distance = np.linalg.norm(place["position_m"] - place["base_m"], axis=2)
    law = C / place["carrier_hz"] / (4.0 * np.pi * distance)
    sight = place["line_of_sight"] > 0
    assert sight.sum() > 50
    ratio = amplitude[sight] / law[sight][:, None]
    np.testing.assert_allclose(ratio, 1.0, rtol=3e-3)
