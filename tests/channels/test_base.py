"""What all channels have in common. Seeds are fixed; the statistical test has a false-alarm level
of 1e-4.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from support.made_channels import make_channel

from otafl.channels.rayleigh import Rayleigh
from otafl.channels.ris import RisSettings
from otafl.core import registry


@pytest.mark.exact
@pytest.mark.parametrize("name", ["rayleigh", "rician"])
def test_closed_forms_are_of_one_antenna_and_no_surface(name: str) -> None:
    assert make_channel(name, 3).has_closed_form
    assert make_channel(name, 3, speed_kmh=3.0).has_closed_form
    assert not make_channel(name, 3, antennas=2).has_closed_form
    assert not make_channel(name, 3, ris=RisSettings(elements=2)).has_closed_form


@pytest.mark.exact
def test_settings_that_cannot_be() -> None:
    for keys in (
        {"antennas": 0},
        {"antenna_correlation": 1.0},
        {"speed_kmh": -1.0},
        {"block_symbols": 0},
        {"ris": {"elements": 0}},
        {"ris": {"elements": 3, "blocked": 1.5}},
        {"ris": {"elements": 3, "rule": "best"}},
        {"ris": {}},
    ):
        with pytest.raises(ValidationError):
            Rayleigh.Settings.model_validate(keys)


@pytest.mark.exact
@pytest.mark.parametrize("name", ["cdl-a", "umi"])
def test_a_correlation_that_follows_from_angles_is_not_given(name: str) -> None:
    with pytest.raises(ValueError, match=r"antenna_correlation: got 0\.5, but here the"):
        registry.load_settings_class("channel", name)(name=name, antenna_correlation=0.5)
