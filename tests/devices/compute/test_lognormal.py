"""Speeds by their law. Seeds are fixed; each test states its sample size and the chance that a
right sampler fails it under another seed.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.made_devices import make_hardware
from support.rounding import assert_agree

from otafl.devices.compute.lognormal import LognormalCompute

LOGNORMAL = LognormalCompute(median_flops_per_s=3e9, sigma=0.8)


@pytest.mark.exact
def test_zero_sigma_makes_all_devices_equal() -> None:
    config = LognormalCompute(median_flops_per_s=3e9, sigma=0.0)
    np.testing.assert_allclose(make_hardware(config, 5, seed=1).flops_per_s, 3e9, rtol=1e-12)


@pytest.mark.exact
def test_the_first_devices_do_not_depend_on_how_many_there_are() -> None:
    many = make_hardware(LOGNORMAL, 50, seed=4).flops_per_s
    assert_agree(many[:10], make_hardware(LOGNORMAL, 10, seed=4).flops_per_s)
    assert not np.array_equal(many, make_hardware(LOGNORMAL, 50, seed=6).flops_per_s)
