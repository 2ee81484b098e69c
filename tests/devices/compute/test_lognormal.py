"""Speeds by their law. Seeds are fixed; each test states its sample size and the chance that a
right sampler fails it under another seed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.made_devices import make_hardware

from otafl.devices.compute.drawn import Drawn
from otafl.devices.compute.lognormal import Lognormal

SAMPLES = 20_000
FALSE_ALARM = 1e-3

LOGNORMAL = Lognormal(median_flops_per_s=3e9, sigma=0.8)
DRAWN = Drawn.model_validate({"flops_per_s": {"lognormal": {"median": 3e9, "sigma": 0.8}}})


@pytest.mark.law
@pytest.mark.parametrize("config", [LOGNORMAL, DRAWN], ids=["lognormal", "drawn"])
def test_lognormal_speeds(config: Lognormal | Drawn) -> None:
    """KS, 40,000 samples, false alarm 1e-3; a sigma or median off by 5 % is beyond it."""
    logs = np.log(make_hardware(config, 2 * SAMPLES, seed=1).flops_per_s)
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8)).pvalue > FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8 * 1.05)).pvalue < FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9 * 1.05), 0.8)).pvalue < FALSE_ALARM


@pytest.mark.exact
def test_zero_sigma_makes_all_devices_equal() -> None:
    config = Lognormal(median_flops_per_s=3e9, sigma=0.0)
    np.testing.assert_allclose(make_hardware(config, 5, seed=1).flops_per_s, 3e9, rtol=1e-15)


@pytest.mark.exact
def test_the_first_devices_do_not_depend_on_how_many_there_are() -> None:
    many = make_hardware(LOGNORMAL, 50, seed=4).flops_per_s
    assert np.array_equal(many[:10], make_hardware(LOGNORMAL, 10, seed=4).flops_per_s)
    assert not np.array_equal(many, make_hardware(LOGNORMAL, 50, seed=6).flops_per_s)
