"""What bends a signal within a payload, symbol by symbol."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.impaired_bench import K, P, deliver, make_impaired, select_rows
from support.link_bench import WEIGHTS, Bench, make_bench

from otafl.uplink import noise

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("quadrature", [False, True])
def test_carrier_offset(quadrature: bool) -> None:
    """Device k's symbol i is turned by 2 pi e_k i."""
    link = make_impaired(make_bench("full", (0, 1), quadrature=quadrature), carrier_offset=0.01)
    got, x, report = deliver(link)
    offset = noise.draw_offsets(link.transport.parts.alignment.impairments, K, 3)[0].numpy()
    assert 0.001 < np.abs(offset).max() <= 0.01
    symbols = -(-P // 2) if quadrature else P
    for s in range(2):
        gain, eta, sent = select_rows(report, x, s)
        if quadrature:
            sent = sent[:, :symbols] + 1j * np.pad(sent[:, symbols:], ((0, 0), (0, 1)))
        turn = np.exp(2j * np.pi * offset[s][:, None] * np.arange(symbols))
        y = (gain[:, None] * turn * sent).sum(0)
        flat = y.real if not quadrature else np.concatenate([y.real, y.imag])[:P]
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


def test_aligned_sample_has_no_leak_and_more_noise() -> None:
    """Noise variance 1 / (1 - latest delay) times larger."""
    link = make_impaired(
        make_bench("full", (0, 1)), timing_offset=0.8, timing_receiver="aligned_sample"
    )
    got, x, report = deliver(link)
    for s, late in enumerate(delays(link)):
        gain, eta, sent = select_rows(report, x, s)
        noise = link.draw_noise(P, 3)[s] / math.sqrt(eta * (1 - late.max()))
        expected = ((gain.real[:, None] * sent).sum(0) + noise) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def test_lmmse_is_the_estimator_of_the_whole_packet() -> None:
    """All K samples of every period, stacked for the whole packet, and the textbook estimate
    C_tr C_rr^-1 r of sum_k w_k x_k; its window of two periods to either side loses next to
    nothing. Inner symbols, as the ends are known to the textbook."""
    link = make_impaired(
        make_bench("full", (0, 1), snr_db=3.0), timing_offset=0.9, timing_receiver="lmmse"
    )
    got, x, report = deliver(link)
    streams = link.streams
    for s, late in enumerate(delays(link)):
        gain, eta, sent = select_rows(report, x, s)
        v = gain.real[:, None] * sent / K
        order = np.argsort(late)
        edges = np.append(late[order], 1.0)
        length = np.diff(edges)
        observe = np.zeros((K * P, K * P))  # r from v, both counted i * K + k
        r = np.zeros((P, K))
        for i in range(P):
            for j in range(K):
                for place, k in enumerate(order):
                    at = i if place <= j else i - 1
                    if at >= 0:
                        observe[i * K + j, at * K + k] = math.sqrt(length[j])
                        r[i, j] += math.sqrt(length[j]) * v[k, at]
        noise = np.stack(
            [streams.draw_normal(f"noise/0/0/{j}", 3, (P,))[s].numpy() for j in range(K)], 1
        )
        variance = 0.5 / eta / K**2
        r += noise * math.sqrt(variance)
        power = gain.real**2 * (sent**2).mean(1) / K**2
        prior = np.tile(power, P)
        covariance = observe @ np.diag(prior) @ observe.T + variance * np.eye(K * P)
        cross = observe * (prior * np.tile(1 / gain.real, P))  # with each x_k w_k
        sums = np.stack([cross[:, i * K : (i + 1) * K].sum(1) for i in range(P)])
        textbook = sums @ np.linalg.solve(covariance, r.ravel())
        inner = slice(4, P - 4)
        truth = (np.array(WEIGHTS)[:, None] * x[s]).sum(0) / sum(WEIGHTS)
        difference = np.square(got[s] - textbook)[inner].mean()
        assert difference < 0.01 * np.square(textbook - truth)[inner].mean()


@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_what_the_receivers_of_late_symbols_are_for(snr_db: float) -> None:
    """LMMSE has the least error at any SNR, the matched filter a floor of interference, the aligned
    sample none (Shao et al., figures 6 and 7: the trend). Mean over 6 trials of 400 symbols."""
    errors = {}
    for one in ("matched_filter", "aligned_sample", "lmmse"):
        link = make_impaired(
            make_bench("ci", tuple(range(6)), snr_db=snr_db), timing_offset=0.9, timing_receiver=one
        )
        errors[one] = deliver(link, num_coordinates=400)[2].nmse.mean().item()
    assert errors["lmmse"] <= min(errors.values()) * 1.001
    if snr_db == 20.0:
        assert errors["aligned_sample"] < errors["matched_filter"]


@pytest.mark.parametrize("quadrature", [False, True])
def test_clipping(quadrature: bool) -> None:
    """|p x| stays below the square root of the budget times the peak ratio; phases stay."""
    link = make_impaired(make_bench("full", (0, 1), quadrature=quadrature), clip_db=1.0)
    got, x, report = deliver(link)
    symbols = -(-P // 2) if quadrature else P
    for s in range(2):
        gain, eta, sent = select_rows(report, x, s)
        if quadrature:
            sent = sent[:, :symbols] + 1j * np.pad(sent[:, symbols:], ((0, 0), (0, 1)))
        p = np.abs(report.saved_tensors["p/0"][s, 0].numpy())[:, None]
        peak = math.sqrt(10.0 * 10**0.1)
        size = np.abs(p * sent)
        assert (size > peak).any()
        clipped = sent * np.minimum(1.0, peak / size)
        y = (gain[:, None] * clipped).sum(0)
        flat = y.real if not quadrature else np.concatenate([y.real, y.imag])[:P]
        expected = (flat + link.draw_noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)
