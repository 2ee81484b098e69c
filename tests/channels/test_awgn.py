"""The channel without fading. The statistical test has a false-alarm level of 1e-4, seeds fixed."""

from __future__ import annotations

import pytest
import torch
from support.made_channels import make_channel


@pytest.mark.exact
def test_awgn_does_not_fade() -> None:
    state = make_channel("awgn", 4, [0, 1], torch.float32).get_state(3)
    assert torch.equal(state.h, torch.ones(2, 4, 1, 1, 1, dtype=torch.complex64))
    assert torch.equal(state.gain, torch.ones(2, 4))


@pytest.mark.exact
def test_mean_inverse_of_awgn_without_error() -> None:
    channel = make_channel("awgn", 1)
    assert channel.compute_mean_inverse(0.1, 1.0, 0.0) == 1.0
    assert channel.compute_mean_inverse(0.1, 0.5, 0.0) == 2.0
    assert channel.compute_mean_inverse(0.6, 0.5, 0.0) == 0.0
