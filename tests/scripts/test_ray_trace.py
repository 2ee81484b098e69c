"""The ray tracer's script, where Sionna RT is installed, which otafl's own environment cannot have:

rays/bin/pip install pytest
rays/bin/python -m pytest --noconftest -c /dev/null tests/scripts/test_ray_trace.py
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sionna.rt")

SCRIPT = Path(__file__).parents[2] / "scripts" / "ray_trace.py"
C = 299_792_458.0


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("ray_trace", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ray_trace"] = module
    spec.loader.exec_module(module)
    return module


def test_free_space_is_friis(script: Any) -> None:
    """lambda / (4 pi d) exp(-j 2 pi f d / c) at every antenna, d to 1e-5 of the amplitude; phases
    of the plane wave of a synthetic array within 0.02 at 100 m."""
    import sionna.rt as rt

    survey = script.Survey((0.0, 0.0, 10.0), antennas=4, rays=10_000)
    scene = script.prepare_scene(rt.load_scene(), survey)
    places = np.array([[100.0, 0.0, 1.5], [30.0, -80.0, 1.5], [0.0, 300.0, 60.0]])
    found = script.trace_rays(scene, places, survey)
    distance = np.linalg.norm(places - np.array(survey.base_m), axis=1)
    wave = C / survey.carrier_hz
    friis = wave / (4.0 * np.pi * distance)
    assert found.sight.all()
    np.testing.assert_allclose(np.abs(found.a[:, :, 0]), friis[:, None].repeat(4, 1), rtol=1e-4)
    np.testing.assert_allclose(found.tau_s[:, 0], distance / C, rtol=1e-5)
    assert (np.abs(found.a[:, :, 1:]) == 0).all()
    offset = (np.arange(4) - 1.5) * wave / 2.0  # along y
    sine = places[:, 1:2] / distance[:, None]
    turn = np.angle(found.a[:, 1:, 0] / found.a[:, :-1, 0])
    step = 2.0 * np.pi * np.diff(offset) / wave * sine
    np.testing.assert_allclose(np.cos(turn), np.cos(step), atol=0.02)


def test_one_reflector_is_two_rays(script: Any) -> None:
    """Over a floor of metal, the path that it reflects has the mirror image's length and, at its
    amplitude, all of the power (a reflection coefficient of 1 within 1 %)."""
    import sionna.rt as rt

    survey = script.Survey((-0.2, 0.0, 1.0), antennas=1, rays=200_000, max_depth=1)
    scene = script.prepare_scene(rt.load_scene(rt.scene.simple_reflector), survey)
    places = np.array([[0.2, 0.0, 0.8], [0.1, 0.1, 1.2]])
    found = script.trace_rays(scene, places, survey)
    base, wave = np.array(survey.base_m), C / survey.carrier_hz
    mirror = base * [1.0, 1.0, -1.0]
    for k, place in enumerate(places):
        order = np.argsort(np.where(np.abs(found.a[k, 0]) > 0, found.tau_s[k], np.inf))[:2]
        lengths = np.array([np.linalg.norm(place - one) for one in (base, mirror)])
        np.testing.assert_allclose(found.tau_s[k, order], lengths / C, rtol=1e-4)
        law = wave / (4.0 * np.pi * lengths)
        np.testing.assert_allclose(np.abs(found.a[k, 0, order]), law, rtol=0.01)
