"""FedRLR's factors through the over-the-air uplink: what the two readings of its "25 dB" do to the
recovered product, and fading that differs between the two factors.

Every statistic is a mean over independent trials of a fixed seed, and must lie within 4.5 standard
errors of its law: false-alarm level 7e-6 a number compared.

Mutations that must fail: the budget per symbol for that of the whole payload, or the other way
round; noise of variance sigma_z^2 on a received real; E1(g_0) left out; one channel for both
coherence blocks.
"""

from __future__ import annotations

import dataclasses
from math import pi, sqrt

import pytest
import torch
from support.link_bench import Given, bench
from torch import Tensor
from twins.rlc import noise_distortion

from otafl.core.contracts import Cohort, Group

pytestmark = pytest.mark.law

F64 = torch.float64
Z = 4.5


def factors(trials: int, devices: int, m: int, n: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """U F and V F over sqrt(K), [S, K, R, M] and [S, K, R, N], and Theta = U V^T itself."""
    generator = torch.Generator().manual_seed(3)
    u, v = (
        torch.linalg.qr(torch.randn(side, rank, generator=generator, dtype=F64))[0]
        for side in (m, n)
    )
    signs = torch.randint(0, 2, (trials, devices, rank, rank), generator=generator)
    f = (2.0 * signs.double() - 1.0) / sqrt(rank * devices)
    return (u @ f).mT, (v @ f).mT, u @ v.mT


def whole(trials: int, devices: int) -> Cohort:
    pair = torch.arange(trials * devices)
    weight = torch.full((trials * devices,), 1.0 / devices, dtype=F64)
    return Cohort.fresh(pair // devices, pair % devices, weight, (devices,) * trials, devices)


@pytest.mark.parametrize(
    ("policy", "convention", "expected"),
    [
        ("gbma", "per_symbol", 3.2e-4),
        ("tci", "per_symbol", 5.8e-4),
        ("gbma", "total_energy", 1.64),
        ("tci", "total_energy", 3.47),
    ],
)
def test_noise_of_the_two_readings_of_the_snr(
    policy: str, convention: str, expected: float
) -> None:
    """25 dB, R = 4, K = 10, equal singular values, one 784 x 256 layer. The relative error that
    noise adds, by the receive scaling of the real uplink and the law; and what it really added,
    over 40 trials, with the devices on air for K."""
    m, n, rank, devices, trials = 784, 256, 4, 10, 40
    left, right, _ = factors(trials, devices, m, n, rank)
    link = bench(
        policy,
        range(trials),
        devices,
        25.0,
        threshold=0.1,
        policy_options={"reference": "mean"},
        snr_convention=convention,
    )
    blocks = {"u": left.flatten(0, 1), "v": right.flatten(0, 1)}
    received, report = link.deliver((Group(blocks, weighting="none"),), whole(trials, devices))
    eta = report.saved["eta/0"][:, 0]
    v = 0.5 / eta[0].item()
    assert noise_distortion(rank, rank, m, n, v) / rank == pytest.approx(expected, rel=0.015)
    gain = (report.saved["h/0"] * report.saved["p/0"]).real[:, 0] / eta.sqrt()[:, None]
    share = (gain > 0).double().mean(1)
    noisy = received.mean[0]["u"].mT @ received.mean[0]["v"]
    clean = torch.einsum("sk,skrm->smr", gain, left) @ torch.einsum("sk,skrn->srn", gain, right)
    added = (noisy - clean).square().sum((1, 2)) / rank
    nuclear = rank * (share.mean().item() if policy == "tci" else 1.0)  # times E a^2
    law = noise_distortion(nuclear, rank, m, n, v) / rank
    assert abs(added.mean() - law) < Z * added.std() / trials**0.5


def test_a_fade_for_each_factor_biases_gbma() -> None:
    """Coherence blocks of M R symbols give each factor of one layer its own h: the mean of the
    product is (E|h|)^2 = pi/4 of Theta, where a common fade gives E|h|^2 = 1.
    4,000 trials of 3 devices."""
    side, rank, devices, trials = 4, 2, 3, 4000
    left, right, theta = factors(trials, devices, side, side, rank)
    generator = torch.Generator().manual_seed(8)
    h = torch.randn(trials, devices, 1, 2, 1, 2, generator=generator, dtype=F64)
    h = torch.view_as_complex(h) / sqrt(2)
    link = bench("gbma", range(trials), devices, 20.0, policy_options={"reference": "mean"})
    apart = Given(h, torch.ones(trials, devices, dtype=F64), side * rank)
    together = Given(h[:, :, :, :1], torch.ones(trials, devices, dtype=F64))
    blocks = {"u": left.flatten(0, 1), "v": right.flatten(0, 1)}
    payload = (Group(blocks, weighting="none"),)
    for channel, law in ((apart, pi / 4), (together, 1.0)):
        received, _ = dataclasses.replace(link, channel=channel).deliver(
            payload, whole(trials, devices)
        )
        product = received.mean[0]["u"].mT @ received.mean[0]["v"]
        along = (product * theta).sum((1, 2)) / rank
        assert abs(along.mean() - law) < Z * along.std() / trials**0.5
