"""The Rayleigh channel's closed forms and draws, which are Sionna's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate
from support.made_channels import FAR, make_channel, take_blocks

from otafl.channels.fading import use_sionna_stream
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact


def test_mean_inverse_of_rayleigh() -> None:
    """E[1/g; g >= threshold] by numerical integration over the exponential law."""
    for threshold, gain, variance in ((0.01, 1.0, 0.0), (0.1, 0.02, 0.3), (2.0, 1.0, 0.3)):
        beta = gain * (1 + variance)
        ends = np.log(threshold), np.log(60 * beta)
        expected = 0.0
        if ends[0] < ends[1]:
            expected, _ = integrate.quad(lambda t, b=beta: np.exp(-np.exp(t) / b) / b, *ends)
        value = make_channel("rayleigh", 1).compute_mean_inverse(threshold, gain, variance)
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)


KINDS = [
    pytest.param("rayleigh", {"antennas": 3, "antenna_correlation": 0.7}, id="correlated"),
    pytest.param("rician", {"speed_kmh": 30.0, "antennas": 3}, id="moving"),
    pytest.param("rayleigh", {"ris": {"elements": 5}, "antennas": 2}, id="surface"),
]


@pytest.mark.parametrize(("kind", "keys"), KINDS)
def test_a_block_is_a_function_of_round_and_block(kind: str, keys: dict[str, Any]) -> None:
    """Whatever was asked for before and however many blocks there are; the first block is h."""
    keys, dtype = {**keys, "block_symbols": 100}, torch.float64
    bounds = {"rtol": 0.0, "atol": 1e-9}
    one, other = (make_channel(kind, 2, (0, 1), dtype, **keys) for _ in range(2))
    antennas, rounds = keys.get("antennas", 1), (0, 1, 7, 8, 63, 64, FAR - 1, FAR)
    expected = {t: take_blocks(one.get_state(t), 21) for t in rounds}
    for t in reversed(rounds):
        state = other.get_state(t)
        assert state.h.shape == (2, 2, antennas, 1, 1)
        assert state.h.dtype == dtype.to_complex()
        torch.testing.assert_close(state.h[..., 0], expected[t][..., :1], **bounds)
        for count in (3, 1, 8, 16, 2):
            assert take_blocks(state, count).shape == (2, 2, antennas, count)
            torch.testing.assert_close(
                take_blocks(state, count), expected[t][..., :count], **bounds
            )
        assert torch.equal(other.get_state(t).h, state.h)
    values = torch.view_as_real(torch.stack(list(expected.values()))).flatten(0, -2)
    assert len(torch.unique(values, dim=0)) == len(values)


@pytest.mark.parametrize(("antennas", "dtype"), [(1, torch.float64), (3, torch.float32)])
def test_draws_are_sionnas(antennas: int, dtype: torch.dtype) -> None:
    """Devices 32 to 39 of the second batch, by Sionna's class and generator, but for the rounding
    of its sqrt(1/2), which depends on the processor: in all rounds that are drawn at once, the
    first block and the third and fourth."""
    from sionna.phy.channel import RayleighBlockFading

    precision = {torch.float32: "single", torch.float64: "double"}[dtype]
    rounding = 2 * torch.finfo(dtype).eps
    streams = Streams([0], [4])
    sionna = RayleighBlockFading(1, antennas, 32, 1, precision=precision, device="cpu")
    one = make_channel("rayleigh", 40, (4,), dtype, antennas=antennas, block_symbols=10)
    for purpose, rounds, those in (
        ("fading/1", max(8, 64 // antennas), slice(0, 1)),
        ("fading/2^1/1", max(8, 64 // antennas) // 2, slice(2, 4)),
    ):
        (seed,) = streams.draw_seeds(purpose, 1)
        count = those.stop - those.start
        with use_sionna_stream(seed, streams.device):
            taps, _ = sionna(rounds * count, 1)
        expected = taps.view(rounds, count, antennas, 32)[..., :8].permute(0, 3, 2, 1)
        for t in range(rounds):
            h = take_blocks(one.get_state(rounds + t), those.stop)[0, 32:]
            torch.testing.assert_close(h[..., those], expected[t], atol=0.0, rtol=rounding)
