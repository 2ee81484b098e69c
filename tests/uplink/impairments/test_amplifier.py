"""Amplifiers and clipping, and the peaks that they meet."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from otafl.uplink.coherent.ofdm_samples import clip_amplitude, rapp, to_carriers, to_samples


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """CN(0, 1)."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((*shape, 2)) @ np.array([1, 1j])) * math.sqrt(0.5)


@pytest.mark.exact
def test_rapp() -> None:
    """Unit gain far below saturation, A far above, A / 2^(1 / 2p) at A; phases as they are."""
    x = torch.tensor([1e-4, 1.0, 1e9, 0.0]) * torch.exp(torch.tensor(0.7j))
    level, smoothness = torch.tensor(2.0), torch.tensor(3.0)
    y = rapp(level * x, level, smoothness)
    expected = torch.tensor([2e-4, 2.0 / 2 ** (1 / 6), 2.0, 0.0])
    torch.testing.assert_close(y.abs(), expected)
    torch.testing.assert_close(y[:3].angle(), torch.full((3,), 0.7))


@pytest.mark.exact
def test_a_hard_amplifier_clips() -> None:
    x = normal(1000)
    hard = rapp(x, torch.tensor(0.8), torch.tensor(80.0))
    torch.testing.assert_close(hard, clip_amplitude(x, torch.tensor(0.8)), atol=1e-2, rtol=0)
    assert clip_amplitude(x, torch.tensor(0.8)).abs().max() <= 0.8 * (1 + 1e-6)
    torch.testing.assert_close(clip_amplitude(x, torch.tensor(math.inf)), x)


@pytest.mark.exact
@pytest.mark.parametrize("carriers", [7, 8])
def test_there_and_back(carriers: int) -> None:
    """Of any number of samples; more of them pass through those of fewer."""
    x = normal(3, carriers)
    for samples in (carriers, 2 * carriers, 4 * carriers):
        wave = to_samples(x, samples)
        torch.testing.assert_close(to_carriers(wave, carriers), x)
        power = wave.abs().square().mean(1)
        torch.testing.assert_close(power, x.abs().square().mean(1))
    torch.testing.assert_close(to_samples(x, 3 * carriers)[:, ::3], to_samples(x, carriers))
