"""Unsourced access to common sequences against searching, closed forms and NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from support.limited_bench import compute_radiated, make_table, send
from support.link_bench import WEIGHTS, draw_updates, make_bench, make_cohort, make_given

import otafl
from otafl.core.contracts import NO_LIMITS, Broadcast, Group, TransmitLimits
from otafl.core.errors import UserError
from otafl.scenario import load_scenario
from otafl.uplink.type_based.unsourced import (
    estimate_counts,
    find_nearest,
    move_codewords,
    weigh_counts,
)

pytestmark = pytest.mark.exact

K, P, Q = 6, 23, 4
WHO = make_cohort(weight=WEIGHTS)
WEIGHT = WHO.normalised_weight.numpy()
KEYS: dict[str, Any] = {"transport": "unsourced", "block": Q, "bits": 3, "length": 16}


def draw_matrix(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a Gaussian matrix with columns of norm one."""
    matrix = rng.standard_normal((rows, columns))
    return matrix / np.linalg.norm(matrix, axis=0)


def recover(
    y: np.ndarray, matrix: np.ndarray, devices: int, deviation: float, iterations: int = 30
) -> np.ndarray:
    blocks, words = len(y), matrix.shape[1]
    found = estimate_counts(
        torch.from_numpy(y)[None],
        torch.from_numpy(matrix),
        torch.full((1, blocks), float(devices), dtype=torch.float64),
        torch.full((1, words), 1.0 / words, dtype=torch.float64),
        torch.full((1, blocks), deviation, dtype=torch.float64),
        iterations,
    )
    return found[0].numpy()


def test_counts_are_those_of_an_exhaustive_search() -> None:
    """Three devices, four codewords and eight real numbers at low noise."""
    rng = np.random.default_rng(2)
    matrix, deviation = draw_matrix(8, 4, rng), 0.05
    counts = rng.multinomial(3, [0.25] * 4, size=200)
    y = counts @ matrix.T + deviation * rng.standard_normal((200, 8))
    all_counts = np.array([n for n in itertools.product(range(4), repeat=4) if sum(n) == 3])
    off = ((y[:, None] - all_counts @ matrix.T) ** 2).sum(2)
    searched = all_counts[off.argmin(1)]
    agree = (recover(y, matrix, 3, deviation).round() == searched).all(1)
    assert agree.mean() > 0.97


def test_counts_without_noise_are_exact() -> None:
    """With as many complex symbols as codewords, whatever the number of devices."""
    rng = np.random.default_rng(3)
    matrix = draw_matrix(2 * 32, 32, rng)
    for devices in (1, 10, 200):
        counts = rng.multinomial(devices, rng.dirichlet(np.ones(32)), size=50)
        found = recover(counts @ matrix.T, matrix, devices, 0.0, iterations=60)
        np.testing.assert_allclose(found, counts, atol=1e-3)


@pytest.mark.parametrize("devices", [5, 1000])
def test_weighed_counts_are_the_mean_and_variance_of_all_of_them(devices: int) -> None:
    """Of many devices, those far from the likeliest count are left out."""
    shares, variance = np.array([1e-4, 0.02, 0.3, 0.67]), np.array([1e-4, 0.3, 50.0, 1e6])
    heard = devices * shares + np.array([3.0, -2.0, 30.0, -100.0])
    counts = np.arange(devices + 1)
    log = stats.binom.logpmf(counts, devices, shares[:, None])
    log = log - (heard[:, None] - counts) ** 2 / (2.0 * variance[:, None, None])
    weight = np.exp(log - log.max(2, keepdims=True))
    weight /= weight.sum(2, keepdims=True)
    mean = weight @ counts
    given = (np.tile(heard, (4, 1)), variance[:, None], np.full((4, 1), float(devices)))
    tensors = [torch.from_numpy(one)[None] for one in (*given, shares[None])]
    found = [one[0].numpy() for one in weigh_counts(*tensors, devices)]
    np.testing.assert_allclose(found[0], mean, rtol=1e-6, atol=1e-9)
    spread = (weight * (counts - mean[..., None]) ** 2).sum(2)
    np.testing.assert_allclose(found[1], spread, rtol=1e-6, atol=1e-9)


def test_one_device_is_detected_as_often_as_the_closed_form_says() -> None:
    """With orthogonal sequences the largest correlation decides, right with probability int phi(x -
    1/s) Phi(x)^(M - 1) dx."""
    words, deviation, blocks = 8, 0.5, 40_000
    rng = np.random.default_rng(4)
    word = rng.integers(words, size=blocks)
    matrix = np.eye(words)
    y = matrix[word] + deviation * rng.standard_normal((blocks, words))
    right = (recover(y, matrix, 1, deviation, iterations=1).argmax(1) == word).mean()
    law = integrate.quad(
        lambda x: stats.norm.pdf(x - 1.0 / deviation) * stats.norm.cdf(x) ** (words - 1), -8, 12
    )[0]
    assert abs(right - law) < 4.0 * math.sqrt(law * (1.0 - law) / blocks)


def test_state_evolution_predicts_the_error() -> None:
    """tau^2 <- s^2 + (M/m) mse(tau), of counts that are binomial, for a Gaussian matrix."""
    words, measured, devices, deviation, blocks = 400, 240, 40, 0.25, 40
    rng = np.random.default_rng(5)
    matrix = draw_matrix(measured, words, rng)
    counts = rng.multinomial(devices, np.full(words, 1.0 / words), size=blocks)
    y = counts @ matrix.T + deviation * rng.standard_normal((blocks, measured))
    off = recover(y, matrix, devices, deviation) - counts
    n = np.arange(8)
    prior = stats.binom.pmf(n, devices, 1.0 / words)

    def compute_mse(tau: float) -> float:
        heard = np.linspace(-8.0 * tau, 7.0 + 8.0 * tau, 20_001)
        joint = prior * stats.norm.pdf(heard[:, None], n, tau)
        total = joint.sum(1)
        mean = (joint * n).sum(1) / np.maximum(total, 1e-300)
        spread = (joint * n**2).sum(1) / np.maximum(total, 1e-300) - mean**2
        return float(np.trapezoid(spread * total, heard))

    square = deviation**2 + words / measured * devices / words
    for _ in range(60):
        square = deviation**2 + words / measured * compute_mse(math.sqrt(square))
    law = compute_mse(math.sqrt(square))
    assert (off**2).mean() == pytest.approx(law, rel=0.25)


def test_codewords_of_normal_blocks() -> None:
    """Lloyd's codewords are the means of their blocks; of one coordinate and two codewords they are
    at +-sqrt(2 / pi), with the error 1 - 2 / pi."""
    draw = torch.randn(1, 200_000, 1, generator=torch.Generator().manual_seed(0)).double()
    codewords = move_codewords(draw[:, :2], draw)
    ends = codewords[0, :, 0].sort().values.numpy()
    np.testing.assert_allclose(ends, [-math.sqrt(2 / math.pi), math.sqrt(2 / math.pi)], atol=0.03)
    near = codewords[0][find_nearest(draw, codewords)[0]]
    assert float((near - draw[0]).square().mean()) == pytest.approx(1.0 - 2.0 / math.pi, rel=0.03)


@pytest.mark.parametrize("case", ["plain", "sum", "blocks", "silence", "crashes"])
def test_the_mean_is_that_of_the_codewords(case: str) -> None:
    """At a high SNR nothing but the rounding to codewords is left. The server takes the mean over
    the codewords that it counts, so that a device that crashes is missing from then on."""
    silence = case == "silence"
    how = "none" if case == "crashes" else "lattice"
    link = make_bench("tci" if silence else "ci", threshold=0.6, snr_db=90.0, project=how, **KEYS)
    blocks = -(-P // Q)
    cell, stops, limits = np.zeros(blocks, int), np.full(K, blocks), NO_LIMITS
    if case in ("blocks", "silence"):
        link = make_given(link, blocks=4, block_symbols=40)
        cell = np.searchsorted([-(-40 * b // 16) for b in (1, 2, 3)], np.arange(blocks), "right")
    if case == "crashes":
        share = make_table([1.0, 0.5, 0.02, 0.8, 0.3, 1.0])
        limits, stops = TransmitLimits(sent_fraction=share), np.floor(share[0].numpy() * blocks)
    x = draw_updates(K, P)
    weighting: Any = "none" if case == "sum" else "mean"
    who = make_cohort() if case == "sum" else WHO
    received, report = send(link, (Group({"a": x}, weighting=weighting),), who, limits)
    scale = np.ones(K) if case == "sum" else K * WEIGHT
    rows = scale[:, None] * x.numpy()
    unit = math.sqrt((rows**2).mean())
    padded = np.pad(rows, ((0, 0), (0, blocks * Q - P))).reshape(K, blocks, Q) / unit
    codewords = link.transport.normal_codewords[0].numpy()
    active, out = report.saved_tensors["active/0"][0].numpy(), np.zeros((blocks, Q))
    for b in range(blocks):
        on, heard = 0.0, 0
        for k in range(K):
            off = ((padded[k, b] - codewords) ** 2).sum(1)
            if active[cell[b], k] and b < stops[k]:
                out[b] += unit * codewords[off.argmin()]
                heard += 1
            on += active[cell[b], k] * WEIGHT[k]
        if case != "sum":
            out[b] /= (K if case != "crashes" else heard) * on
    got = received.mean[0]["a"][0].numpy()
    np.testing.assert_allclose(got, out.ravel()[:P], atol=1e-3)
    assert bool(active.all()) != silence


def test_sequences_add_up_with_complex_gains() -> None:
    """What is left of a phase or of the channel's error turns real parts into imaginary ones."""
    rng = np.random.default_rng(6)
    transport = make_bench("ci", **KEYS).transport
    words = rng.integers(8, size=(1, K, 5))
    gain = rng.standard_normal((1, K, 5)) + 1j * rng.standard_normal((1, K, 5))
    matrix = transport.sequences.numpy()
    sequences = matrix[:16] + 1j * matrix[16:]
    np.testing.assert_allclose(np.linalg.norm(sequences, axis=0), 1.0)
    sums = np.einsum("kc,lkc->cl", gain[0], sequences[:, words[0]])
    got = transport._superpose(torch.from_numpy(words), torch.from_numpy(gain))[0].numpy()
    np.testing.assert_allclose(got, np.concatenate([sums.real, sums.imag], 1))


def test_power_energy_uses_and_side_information() -> None:
    """A block's energy of one is spread over L channel uses. A device tells its root mean square,
    and whether it is on air."""
    link = make_bench("ci", **KEYS)
    _, report = send(link, (Group({"a": draw_updates(K, P)}),), WHO)
    p = report.saved_tensors["p/0"][0, 0].abs().square().numpy()
    assert p.max() == pytest.approx(16 * float(link.budget[0]))
    np.testing.assert_allclose(report.power[0], p / 16)
    np.testing.assert_allclose(compute_radiated(link, report)[0], 6 * p)
    assert report.symbols.tolist() == [6 * 16]
    assert report.side_symbols.tolist() == [2 * K]


def test_the_error_does_not_depend_on_the_size_of_updates() -> None:
    """Squares of the smaller ones underflow in single precision."""
    tree: dict[str, Any] = {"name": "s", "data": "digits", "transport": "unsourced", "power": "ci"}
    tree |= {"training": {"rounds": 1, "local_steps": 1}, "devices": {"count": 3}}
    errors = [
        otafl.run(tree | {"algorithm": {"name": "fedavg", "learning_rate": rate}})
        for rate in (2.0**-40, 2.0**-80)
    ]
    large, small = (float(one.aggregation_nmse.isel(round=-1, trial=0)) for one in errors)
    assert small == pytest.approx(large, rel=1e-3)


def test_codewords_that_follow_the_aggregate_are_broadcast() -> None:
    link = make_bench("ci", **KEYS | {"codebook": "aggregate"})
    sent = Broadcast({"model": torch.zeros(1, P)})
    assert link.transport.extend_broadcast(sent, 0).side_coordinates == 0
    send(link, (Group({"a": draw_updates(K, P)}),), WHO)
    assert link.transport.extend_broadcast(sent, 1).side_coordinates == 8 * Q


def test_learning_with_few_symbols_and_noise() -> None:
    tree: dict[str, Any] = {"name": "s", "data": "digits", "model": "softmax_regression"}
    tree |= {"algorithm": {"name": "fedavg", "learning_rate": 0.5}, "training": {"rounds": 12}}
    tree |= {"channel": {"snr_db": 10.0}, "power": "tci", "devices": {"count": 5}, "trials": 2}
    for codebook in ("normal", "aggregate"):
        found = otafl.run(tree | {"transport": {"name": "unsourced", "codebook": codebook}})
        assert found.test_accuracy.isel(round=-1).min() > 0.6


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "power: 'gbma' does not go with transport: 'unsourced', which receives counts"),
        ({"power": "ci", "impairments": {"adc_bits": 4}}, "impairments.adc_bits: 4 does not go"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as raised:
        load_scenario({"name": "s", "transport": "unsourced"} | keys)
    assert said in " ".join(str(raised.value).split())


def test_devices_with_parts_are_refused() -> None:
    link = make_bench("ci", **KEYS)
    mask = {"a": torch.ones(K, P, dtype=torch.float64)}
    with pytest.raises(UserError, match="counts blocks of coordinates"):
        send(link, (Group({"a": draw_updates(K, P)}, mask=mask),), WHO)
