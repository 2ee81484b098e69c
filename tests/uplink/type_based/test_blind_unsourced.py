"""Counts of codewords without channel knowledge against closed forms and NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize
from support.limited_bench import compute_radiated, send
from support.link_bench import WEIGHTS, draw_updates, make_bench, make_cohort, make_given

from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.scenario import load_scenario
from otafl.uplink.noise import draw_sample_noise
from otafl.uplink.type_based.blind_unsourced import fit_counts, project_to_sum

pytestmark = pytest.mark.exact

K, P, Q, L = 6, 11, 4, 8
WHO = make_cohort(weight=WEIGHTS)
WEIGHT = WHO.normalised_weight.numpy()
KEYS: dict[str, Any] = {"transport": "blind_unsourced", "block": Q, "bits": 3, "length": L}


def make_link(antennas: int, **keys: Any) -> Any:
    link = make_bench(**KEYS | keys)
    return make_given(link, antennas=antennas)


def draw_sequences(length: int, words: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal((length, words)) + 1j * rng.standard_normal((length, words))
    return draw / np.linalg.norm(draw, axis=0)


def test_expected_energies_give_exact_counts() -> None:
    """Forty codewords can be told apart by covariances of eight symbols."""
    rng = np.random.default_rng(1)
    sequences = draw_sequences(8, 40)
    gram = np.abs(sequences.conj().T @ sequences) ** 2
    counts = rng.multinomial(12, np.full(40, 1 / 40), size=30)
    found = fit_counts(
        torch.from_numpy(counts @ gram)[None],
        torch.from_numpy(gram),
        torch.full((1, 30), 12.0, dtype=torch.float64),
        3000,
    )
    np.testing.assert_allclose(found[0], counts, atol=1e-3)


def test_projection_to_a_sum() -> None:
    y = np.random.default_rng(2).standard_normal((20, 5)) * 3.0
    got = project_to_sum(torch.from_numpy(y), torch.full((20, 1), 4.0, dtype=torch.float64)).numpy()
    for row, near in zip(y, got, strict=True):
        shift = optimize.brentq(lambda s, r=row: np.maximum(r - s, 0.0).sum() - 4.0, -20, 20)
        np.testing.assert_allclose(near, np.maximum(row - shift, 0.0), atol=1e-9)


def test_twin_of_a_round() -> None:
    """Devices of unequal gain send loop by loop, and the server solves for the covariance."""
    antennas = 16
    link = make_link(antennas, iterations=1000)
    x = draw_updates(K, P)
    received, report = send(link, (Group({"a": x}),), WHO)
    rows = K * WEIGHT[:, None] * x.numpy()
    unit = math.sqrt((rows**2).mean())
    blocks = -(-P // Q)
    padded = np.pad(rows, ((0, 0), (0, blocks * Q - P))).reshape(K, blocks, Q) / unit
    codewords = link.transport.normal_codewords[0].numpy()
    matrix = link.transport.sequences.numpy()
    sequences = matrix[:L] + 1j * matrix[L:]
    h, gain = (one[0].numpy() for one in (link.channel.h[..., 0, 0], link.channel.gain))
    h = h * np.sqrt(gain)[:, None]
    a = (L * link.budget[0].item() * gain).min()
    y = np.zeros((antennas, blocks, L), complex)
    impairments = link.transport.parts.alignment.impairments
    y += draw_sample_noise(link.streams, impairments, 0, torch.from_numpy(y)[None], (0, 0))[
        0
    ].numpy()
    for b in range(blocks):
        for k in range(K):
            word = ((padded[k, b] - codewords) ** 2).sum(1).argmin()
            y[:, b] += np.outer(h[k] * math.sqrt(a / gain[k]), sequences[:, word])
    out = np.zeros((blocks, Q))
    pairs = np.stack([np.outer(s, s.conj()).ravel() for s in sequences.T], 1)
    for b in range(blocks):
        covariance = (y[:, b].T @ y[:, b].conj() / antennas - np.eye(L)) / a
        heavy = 1e4 * np.ones((1, 8))  # a row that holds the sum of the counts
        design = np.concatenate([pairs.real, pairs.imag, heavy])
        goal = np.concatenate([covariance.real.ravel(), covariance.imag.ravel(), [1e4 * K]])
        counts = optimize.nnls(design, goal, maxiter=1000)[0]
        out[b] = unit * counts @ codewords / K
    got = received.mean[0]["a"][0].numpy()
    np.testing.assert_allclose(got, out.ravel()[:P], atol=1e-4 * unit)
    mean = (np.abs(h) ** 2).mean(1) / gain
    np.testing.assert_allclose(report.saved_tensors["c/0"][0, 0], mean)


def test_error_falls_with_the_number_of_antennas() -> None:
    """The squared error beside that of the codewords falls as 1 / A."""
    x = torch.randn(K, 400, generator=torch.Generator().manual_seed(1)).double()
    means = {}
    for antennas in (64, 256, 1 << 14):
        link = make_link(antennas, iterations=200, snr_db=20.0)
        means[antennas] = send(link, (Group({"a": x}),), make_cohort())[0].mean[0]["a"][0].numpy()
    few, many = (((means[a] - means[1 << 14]) ** 2).mean() for a in (64, 256))
    assert 2.5 < few / many < 6.0


def test_power_energy_uses_and_side_information() -> None:
    """The weakest device sends at its budget; the others as much less as their gain is larger."""
    link = make_link(4)
    _, report = send(link, (Group({"a": draw_updates(K, P)}),), WHO)
    gain, budget = link.channel.gain[0].numpy(), float(link.budget[0])
    power = report.power[0].numpy()
    np.testing.assert_allclose(power, budget * gain.min() / gain, rtol=1e-9)
    np.testing.assert_allclose(compute_radiated(link, report)[0], 3 * L * power)
    assert report.symbols.tolist() == [3 * L]
    assert report.side_symbols.tolist() == [2 * K]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"channel": {"antennas": 1}}, "channel.antennas: 1 does not go with transport"),
        ({"power": "ci"}, "power: 'ci' does not go with transport: 'blind_unsourced'"),
        ({"csi": {"name": "error"}}, "csi: 'error' does not go with transport: 'blind_unsourced'"),
        ({"impairments": {"clip_db": 3}}, "impairments.clip_db: 3.0 does not go"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], said: str) -> None:
    tree: dict[str, Any] = {"name": "s", "transport": "blind_unsourced", "channel": {"antennas": 8}}
    with pytest.raises(UserError) as raised:
        load_scenario(tree | keys)
    assert said in " ".join(str(raised.value).split())
