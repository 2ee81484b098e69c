"""Mistakes about angles, delays and time, each of which makes the laws fail that are named, and no
other of that channel."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from support.mutations import Patch, constant, failing, made, replaced, scaled, turned


def a_wavelength_apart(line: Any) -> None:
    start = line._start
    line._start = start * (start * start[:, :, :1].conj())


def angles(*order: int) -> Patch:
    """Angles of a profile in another order than azimuth and zenith at the server, at the device."""

    def change(profile: Any) -> Any:
        index = list(order)
        return dataclasses.replace(
            profile,
            angles=profile.angles[index],
            spread=profile.spread[index],
            los_angles=profile.los_angles[index],
        )

    return turned("otafl.channels.cdl.cdl_profile", change)


def blocks_twice_as_long(one: Any) -> None:
    name = "_per_block" if hasattr(one, "_per_block") else "_block_s"
    setattr(one, name, 2 * getattr(one, name))


def no_coupling(real: Any) -> Any:
    """Rays that have the smallest azimuth and the smallest zenith of a cluster together."""

    def rays(profile: Any, coupling: Any, bearing: Any, delay_spread_s: Any) -> Any:
        order = torch.arange(coupling.shape[-1]).expand_as(coupling)
        return real(profile, order, bearing, delay_spread_s)

    return rays


def delays_twice(real: Any) -> Any:
    return lambda delay_s, frequency_hz, dtype: real(2.0 * delay_s, frequency_hz, dtype)


def to_one_side(real: Any) -> Any:
    """Bearings a radian off."""
    return lambda profile, coupling, bearing, delay_spread_s: real(
        profile, coupling, bearing + 1.0, delay_spread_s
    )


def no_less_fresh(real: Any) -> Any:
    """Antennas that fade by 1 beside what they share with their neighbour, for 1 - r^2."""

    def correlated(h: Any, neighbours: float, dim: int) -> Any:
        out = list(h.movedim(dim, 0).unbind(0))
        for index in range(1, len(out)):
            out[index] = neighbours * out[index - 1] + out[index]
        return torch.stack(out, dim)

    return correlated


def about_the_first(real: Any) -> Any:
    """Antennas correlated with the first one, as far as their distance says, and not with each
    other beyond."""

    def correlated(h: Any, neighbours: float, dim: int) -> Any:
        first, *others = h.movedim(dim, 0).unbind(0)
        shares = [neighbours**distance for distance in range(1, len(others) + 1)]
        both = zip(shares, others, strict=True)
        return torch.stack([first, *(r * first + (1 - r**2) ** 0.5 * own for r, own in both)], dim)

    return correlated


COVARIANCE = "antenna covariance"
ARRAY, WALK, PATHS = "antennas", "autocorrelation", "frequency covariance"
POWER, BLOCKS = "autocorrelation of power", "autocorrelation over blocks"

MUTATIONS: dict[str, tuple[str, set[str], Patch]] = {
    "a wavelength apart (line of sight)": (
        "rician",
        {ARRAY},
        made("otafl.channels.rician:LineOfSight", a_wavelength_apart),
    ),
    "a wavelength apart (tap)": ("tdl-d", {ARRAY}, scaled("otafl.channels.tdl.line_array", 2.0)),
    "a wavelength apart (rays)": (
        "cdl-c",
        {ARRAY},
        scaled("otafl.channels.plane_waves.line_array", 2.0),
    ),
    "line of sight at the whole Doppler": (
        "tdl-d",
        {WALK},
        constant("otafl.channels.tdl.LOS_COSINE", 1.0),
    ),
    "antennas along x": (
        "cdl-c",
        {ARRAY},
        replaced(
            "otafl.channels.plane_waves.line_array",
            lambda real: lambda azimuth, zenith, count: real(azimuth + torch.pi / 2, zenith, count),
        ),
    ),
    "a sector to one side": (
        "cdl-e",
        {ARRAY},
        replaced("otafl.channels.cdl.cdl_rays", to_one_side),
    ),
    "the server's angles at the device": ("cdl-c", {WALK, POWER}, angles(0, 1, 0, 1)),
    "the device's angles at the server": ("cdl-c", {ARRAY}, angles(2, 3, 2, 3)),
    "zenith for azimuth at the device": ("cdl-c", {WALK, POWER}, angles(0, 1, 3, 2)),
    "delays twice": (
        "cdl-c",
        {PATHS},
        replaced("otafl.channels.plane_waves.delay_rotations", delays_twice),
    ),
    "antennas with too much power": (
        "rayleigh",
        {COVARIANCE},
        replaced("otafl.channels.scattering.correlated", no_less_fresh),
    ),
    "antennas correlated with the first (flat)": (
        "rayleigh",
        {COVARIANCE},
        replaced("otafl.channels.scattering.correlated", about_the_first),
    ),
    "antennas correlated with the first (moving)": (
        "rayleigh",
        {COVARIANCE},
        replaced("otafl.channels.jakes.correlated", about_the_first),
    ),
    "antennas correlated with the first (taps)": (
        "tdl-a",
        {COVARIANCE},
        replaced("otafl.channels.tdl.correlated", about_the_first),
    ),
    "blocks twice as long (flat)": (
        "rayleigh",
        {BLOCKS},
        made("otafl.channels.jakes:Oscillators", blocks_twice_as_long),
    ),
    "blocks twice as long (line of sight)": (
        "rician",
        {BLOCKS},
        made("otafl.channels.jakes:Oscillators", blocks_twice_as_long),
    ),
    "blocks twice as long (taps)": (
        "tdl-a",
        {BLOCKS},
        made("otafl.channels.ofdm:OfdmStates", blocks_twice_as_long),
    ),
    "blocks twice as long (rays)": (
        "cdl-e",
        {WALK, POWER},
        made("otafl.channels.ofdm:OfdmStates", blocks_twice_as_long),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, laws, patch = MUTATIONS[mutation]
    failed = failing(f"channel {channel}:", patch, monkeypatch)
    assert failed == {f"channel {channel}: {law}" for law in laws}
