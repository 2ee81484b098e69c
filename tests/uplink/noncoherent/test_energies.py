"""Energies of noise, of interferers, and of a signal with noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from otafl.uplink import noise
from otafl.uplink.noncoherent import energy_detection
from otafl.uplink.noncoherent.energies import NOISE_ENERGY, _add_noise, receive_energies
from otafl.validation.bench import Bench

QUIET_DB = -60.0
PAIRS = 20_000


@pytest.mark.exact
def test_noise_is_added_to_the_signal_as_a_complex_number() -> None:
    """|mu + sqrt(r) exp(j theta)|^2 of an exponential r and one of 512 directions theta."""
    words = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (1, 50)))
    energy = torch.linspace(0.0, 9.0, 100, dtype=torch.float64).view(1, 2, 50)
    bits = words.view(torch.int32).view(1, 2, 50).numpy()
    r = -NOISE_ENERGY * np.log(bits * 2.0**-32 + 0.5)
    theta = 2.0 * math.pi / 512 * (bits & 511)
    expected = np.abs(np.sqrt(energy.numpy()) + np.sqrt(r) * np.exp(1j * theta)) ** 2
    _add_noise(energy, words)
    np.testing.assert_allclose(energy.numpy(), expected, rtol=1e-9, atol=1e-12)


def listen(monkeypatch: pytest.MonkeyPatch, antennas: int, **impairments: Any) -> tuple[Any, Any]:
    """The transport and the energies [S, 2, P] of two trials, almost without a signal."""
    seen: list[Tensor] = []

    def receive(*args: Any) -> Iterator[Any]:
        for columns, energy, exact in receive_energies(*args):
            seen.append(energy.clone())
            yield columns, energy, exact

    monkeypatch.setattr(energy_detection, "receive_energies", receive)
    channel = {"name": "rayleigh", "snr_db": QUIET_DB, "antennas": antennas}
    point = {"channel": channel, "transport": "reed", "impairments": impairments}
    rig = Bench().build_rig(2, 2, point)
    rig.send(rig.draw_symbols(PAIRS, 0), 0)
    return rig.link.transport, torch.cat(seen, 2).numpy()


def test_interferers_are_noise_of_their_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the gains g of two interferers, each trial's energies are exponential of mean 1 + sum
    |g|^2: 40,000 each, within five standard errors."""
    transport, energy = listen(monkeypatch, 1, interference_db=6.0, interferers=2)
    impairments = transport.parts.alignment.impairments
    gains = noise.draw_interferers(impairments, 1, 0).abs().square().sum((1, 2))
    for own, gain in zip(energy, gains.tolist(), strict=True):
        mean = NOISE_ENERGY + gain
        assert own.mean() == pytest.approx(mean, rel=5 / math.sqrt(own.size))
        assert own.var() == pytest.approx(mean**2, rel=0.1)
