"""Quantised phases, by hand and over Rayleigh fading."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from support.csi_bench import (
    DEVICES,
    DOUBLE,
    LEVEL,
    ROUNDS,
    TRIALS,
    Recorded,
    compute_link_budget,
    make_csi,
    make_links,
)

from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams
from otafl.csi.phase_feedback import PhaseFeedback


def feedback(*bits: int, dtype: torch.dtype = DOUBLE) -> PhaseFeedback:
    streams = Streams([0] * len(bits), range(len(bits)), dtype=dtype)
    ones = torch.ones(len(bits), 1, dtype=dtype)
    hyper = {"bits": torch.tensor(bits, dtype=dtype)}
    channel = Recorded(ChannelState(ones[:, :, None, None, None].to(dtype.to_complex()), ones))
    return make_csi("phase_feedback", channel, compute_link_budget(ones, ones), streams, hyper)


@pytest.mark.exact
def test_phase_levels() -> None:
    """One bit: 0 and pi. Two: quarters. Three: eighths. The amplitude stays."""
    angles = torch.tensor([0.0, 0.7, 0.8, 1.5, 1.6, 3.0, -0.7, -0.8, -2.4, -3.0], dtype=DOUBLE)
    levels = {
        1: [0, 0, 0, 0, 1, 1, 0, 0, -1, -1],
        2: [0, 0, 1, 1, 1, 2, 0, -1, -2, -2],
        3: [0, 1, 1, 2, 2, 4, -1, -1, -3, -4],
    }
    amplitude = torch.linspace(0.1, 2.0, len(angles), dtype=DOUBLE)
    h = torch.polar(amplitude, angles).expand(3, -1)[:, :, None, None, None].clone()
    got = feedback(1, 2, 3).estimate(h, torch.ones(3, len(angles), dtype=DOUBLE), 0)
    torch.testing.assert_close(got.abs(), h.abs())
    for row, (bits, level) in enumerate(levels.items()):
        turned = amplitude.numpy() * np.exp(2j * np.pi * np.array(level) / 2**bits)
        np.testing.assert_allclose(got[row].flatten().numpy(), turned, atol=1e-12)


@pytest.mark.law
@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_phase_feedback(bits: int) -> None:
    """The error of 20,000 Rayleigh phases is uniform in +-x, x = pi / 2^bits (KS), and its mean
    cosine is sin(x) / x, its variance 1/2 + sin(2x) / (4x) - (sin(x) / x)^2. The false-alarm
    level over all is 1e-4."""
    ones = torch.ones(TRIALS, DEVICES, dtype=DOUBLE)
    channel, link, streams = make_links(ones, ones)
    hyper = {"bits": torch.full((TRIALS,), float(bits), dtype=DOUBLE)}
    csi = make_csi("phase_feedback", channel, link, streams, hyper)
    h = torch.stack([channel.get_state(t).h for t in range(ROUNDS)])
    h_hat = torch.stack([csi.estimate(one, ones, t) for t, one in enumerate(h)])
    error = (h * h_hat.conj()).angle().flatten().numpy()
    x = np.pi / 2**bits
    assert stats.kstest(error, "uniform", args=(-x, 2 * x)).pvalue > LEVEL / 2
    mean = np.sin(x) / x
    spread = np.sqrt((0.5 + np.sin(2 * x) / (4 * x) - mean**2) / error.size)
    assert abs(np.cos(error).mean() - mean) < stats.norm.isf(LEVEL / 4) * spread
