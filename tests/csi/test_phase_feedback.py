"""Quantised phases, by hand and over Rayleigh fading."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.csi_bench import (
    DOUBLE,
    Recorded,
    compute_link_budget,
    make_csi,
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
