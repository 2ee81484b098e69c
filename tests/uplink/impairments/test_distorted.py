"""What bends a signal within a payload, symbol by symbol."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.impaired_bench import K, P, deliver, make_impaired, select_rows
from support.link_bench import Bench, make_bench

from otafl.uplink import noise

pytestmark = pytest.mark.exact

SYMBOLS = -(-P // 2)


def pair(sent: np.ndarray) -> np.ndarray:
    """[K, symbols] of two reals each."""
    return sent[:, :SYMBOLS] + 1j * np.pad(sent[:, SYMBOLS:], ((0, 0), (0, 1)))


def test_carrier_offset() -> None:
    """Device k's symbol i is turned by 2 pi e_k i."""
    link = make_impaired(make_bench("full", (0, 1), quadrature=True), carrier_offset=0.01)
    got, x, report = deliver(link)
    offset = noise.draw_offsets(link.transport.parts.alignment.impairments, K, 3)[0].numpy()
    assert 0.001 < np.abs(offset).max() <= 0.01
    for s in range(2):
        gain, eta, sent = select_rows(report, x, s)
        turn = np.exp(2j * np.pi * offset[s][:, None] * np.arange(SYMBOLS))
        y = (gain[:, None] * turn * pair(sent)).sum(0)
        flat = np.concatenate([y.real, y.imag])[:P]
        expected = (flat + link.draw_noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def delays(link: Bench, round: int = 3) -> np.ndarray:
    """[S, K] after the first device of each trial."""
    delay = noise.draw_offsets(link.transport.parts.alignment.impairments, K, round)[1].numpy()
    return delay - delay.min(1, keepdims=True)


def test_late_symbols_leak_into_the_next_matched_filter() -> None:
    """A device d late has (1 - d) of its symbol and d of the one before in a period."""
    link = make_impaired(make_bench("full", (0, 1)), timing_offset=0.8)
    got, x, report = deliver(link)
    for s, late in enumerate(delays(link)):
        gain, eta, sent = select_rows(report, x, s)
        before = np.pad(sent[:, :-1], ((0, 0), (1, 0)))
        y = (gain.real[:, None] * ((1 - late)[:, None] * sent + late[:, None] * before)).sum(0)
        expected = (y + link.draw_noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def test_clipping() -> None:
    """|p x| stays below the square root of the budget times the peak ratio; phases stay."""
    link = make_impaired(make_bench("full", (0, 1), quadrature=True), clip_db=1.0)
    got, x, report = deliver(link)
    for s in range(2):
        gain, eta, sent = select_rows(report, x, s)
        sent = pair(sent)
        p = np.abs(report.saved_tensors["p/0"][s, 0].numpy())[:, None]
        peak = math.sqrt(10.0 * 10**0.1)
        size = np.abs(p * sent)
        assert (size > peak).any()
        clipped = sent * np.minimum(1.0, peak / size)
        y = (gain[:, None] * clipped).sum(0)
        flat = np.concatenate([y.real, y.imag])[:P]
        expected = (flat + link.draw_noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)
