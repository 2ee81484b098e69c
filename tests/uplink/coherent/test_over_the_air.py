"""The over-the-air sum against plain simulations, its error, power and cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special
from support.impaired_bench import K, P, deliver, make_impaired, map_cells
from support.link_bench import (
    POLICIES,
    WEIGHTS,
    add_setup,
    draw_updates,
    make_bench,
    make_cohort,
    make_given,
)
from twins.over_the_air import plain

import otafl
from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.receivers.base import Eigen
from otafl.uplink import noise

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("normalise", "weighting", "variance"),
    [("payload", "unequal", 0.1), ("block", "equal", 0.0), ("payload", "none", 0.0)],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_against_the_plain_complex_simulation(
    policy: str, normalise: str, weighting: str, variance: float
) -> None:
    """Two blocks of very different scale, three trials, two rounds, our noise in both."""
    link = make_bench(policy, (0, 1, 2), variance=variance, normalise=normalise)
    weight = np.array([1.0] * 6 if weighting != "unequal" else WEIGHTS)
    who = make_cohort((6, 6, 6), weight=list(weight) * 3)
    blocks = {"a": draw_updates(18, 6).view(18, 2, 3), "b": 1e-3 * draw_updates(18, 11, 1)}
    group = Group(blocks, weighting="none" if weighting == "none" else "mean")
    x = np.concatenate([blocks["a"].flatten(1).numpy(), blocks["b"].numpy()], 1).reshape(3, 6, 17)
    for round in (0, 70):
        received, report = link.deliver((group,), who, round)
        got = torch.cat([b.flatten(1) for b in received.mean[0].values()], 1).numpy()
        h, h_hat = (report.saved_tensors[f"{name}/0"].numpy() for name in ("h", "h_hat"))
        noise = link.draw_noise(17, round)
        columns = [slice(0, 17)] if normalise == "payload" else [slice(0, 6), slice(6, 17)]
        for s in range(3):
            for part in columns:
                expected = plain(
                    policy, x[s][:, part], weight, h[s, 0], h_hat[s, 0], noise[s, part],
                    link.budget[s].item(), weighting != "none", variance,
                )  # fmt: skip
                np.testing.assert_allclose(got[s, part], expected, rtol=1e-6, atol=1e-9)


def test_everybody_silent_is_a_no_op() -> None:
    """A threshold that nobody meets: nothing arrives, nothing is radiated, nothing is NaN."""
    link = make_bench("tci", (0, 1), threshold=60.0)
    received, report = link.deliver((Group({"a": draw_updates(12, 5)}),), make_cohort((6, 6)))
    assert received.any_delivered is not None
    assert received.any_delivered.tolist() == [False, False]
    assert (received.mean[0]["a"] == 0).all()
    assert received.group_weight[0].tolist() == [0, 0]
    assert report.participants.tolist() == [0, 0]
    assert (report.energy_j == 0).all()
    torch.testing.assert_close(report.nmse, torch.ones(2).double())


@pytest.mark.parametrize("policy", ["ci", "gbma"])
def test_power_energy_and_airtime_by_hand(policy: str) -> None:
    """Default 20 dBm = 0.1 W is the budget of 10 (10 dB): one noise unit is 0.01 W. 12 symbols at
    1 MHz last 12 us. Joules = watts x airtime of who is on air."""
    link = make_bench(policy)
    x = draw_updates(6, 12)
    _, report = link.deliver((Group({"a": x}),), make_cohort(weight=WEIGHTS))
    w = report.saved_tensors["weight/0"][0].numpy()
    p = report.saved_tensors["p/0"][0, 0].numpy()
    energy = np.abs(p) ** 2 * ((K * w[:, None] * x.numpy()) ** 2).sum(1)
    np.testing.assert_allclose(report.energy_j[0].numpy(), energy * 0.01 * 1e-6, rtol=1e-9)
    np.testing.assert_allclose(report.power[0].numpy(), energy / 12, rtol=1e-9)
    assert report.airtime_s[0].item() == pytest.approx(12e-6)
    np.testing.assert_allclose(
        report.energy_j[0].numpy(), report.power[0].numpy() * 0.01 * 12e-6, rtol=1e-9
    )
    assert report.symbols[0] == 12
    assert report.bits[0] == 0
    assert report.participants[0] == report.saved_tensors["active/0"].sum()


@pytest.mark.parametrize("policy", ["gbma", "tci"])
def test_total_energy_is_the_papers_literal_scaling(policy: str) -> None:
    """gamma = P sigma^2 / (c_p mean_k |S_k|^2), S_k the whole payload, c_p = 1 or E1(0.3)."""
    link = make_bench(
        policy, policy_options={"reference": "mean"}, snr_convention="total_energy", snr_db=25.0
    )
    x = {"u": draw_updates(6, 12), "v": 0.1 * draw_updates(6, 20, 1)}
    _, report = link.deliver((Group(x, weighting="none"),), make_cohort())
    energy = torch.cat(list(x.values()), 1).square().sum(1).mean().item()
    gamma = 10**2.5 / energy / (1.0 if policy == "gbma" else special.exp1(0.3))
    assert report.saved_tensors["eta/0"].item() == pytest.approx(gamma)


def test_total_energy_counts_what_a_device_sends() -> None:
    """Device 0 sends 10 symbols, device 1 sends 30 (both groups): both radiate P in all."""
    link = make_bench("full", devices=2, snr_convention="total_energy", snr_db=10.0)
    groups = (
        Group({"a": draw_updates(2, 10)}),
        Group({"b": draw_updates(1, 20)}, row_index=torch.tensor([1])),
    )
    _, report = link.deliver(groups, make_cohort((2,), 2))
    torch.testing.assert_close(report.energy_j[0], torch.full((2,), 10 * 0.01 * 1e-6).double())


def test_budgets_beyond_single_precision_are_refused() -> None:
    channel = {"name": "rayleigh", "device_budget_db": [0.0, 300.0]}
    with pytest.raises(UserError, match=r"channel: .* from -300 to 300 dB .* device_budget_db"):
        otafl.over_the_air(draw_updates(K, P).float(), snr_db=10.0, channel=channel)


def test_variation_over_the_devices() -> None:
    """E|x_k|^2 over the power of the mean, which is the mean over pairs, E x_j x_k, less 1."""
    x = 1.0 + draw_updates(K, 40)
    energy, both = x.square().sum().item(), x.sum(0).square().sum().item()
    variation = energy / K / ((both - energy) / (K * (K - 1))) - 1
    assert variation > 0.1
    eta = []
    for given in (None, variation, 2 * variation):
        link = make_bench("smcv", policy_options={"variation": given})
        _, report = link.deliver((Group({"a": x}),), make_cohort())
        eta.append(report.saved_tensors["eta/0"].item())
    assert eta[0] == pytest.approx(eta[1])
    assert eta[0] != pytest.approx(eta[2])


CASES = [
    ("full", (None, 1, 1), True, "mean"),
    ("ci", (None, 1, 4), False, "none"),
    ("tci", (10, 5, 1), False, "mean"),
    ("full", (16, 3, 4), True, "none"),
    ("ci", (1, 41, 1), False, "mean"),
    ("tci", (2, 21, 2), True, "mean"),
]
"""Policy, grid of cells, whether symbols have two quadratures, and the weighting."""


@pytest.mark.parametrize(("policy", "grid", "quadrature", "weighting"), CASES)
def test_against_the_complex_baseband(
    policy: str, grid: tuple[int | None, int, int], quadrature: bool, weighting: str
) -> None:
    """y_a[i] = sum_k sqrt(gain) h_ka[i] p_k[i] x_k[i] + z_a[i] of three antennas, combined by the
    first eigenvector of each cell, from the saved p and eta; imperfect estimates, residual
    phases."""
    block_symbols, blocks, groups = grid
    link = make_bench(policy, (0, 1), variance=0.1, quadrature=quadrature)
    link = make_given(add_setup(link, receiver=Eigen()), 3, blocks, groups, block_symbols)
    link = make_impaired(link, residual_phase_rad=0.4)
    got, x, report = deliver(link, weighting)
    symbols = -(-P // 2) if quadrature else P
    cell = map_cells(block_symbols, blocks, groups, symbols)
    used = sorted(set(cell))
    saved = {name.split("/")[0]: value.numpy() for name, value in report.saved_tensors.items()}
    channel = link.channel.get_state(3)
    root, fading = channel.gain.sqrt()[..., None, None, None], channel.extend_to(symbols)
    h = (root * fading).flatten(3).numpy()
    estimate = link.transport.parts.alignment.csi.estimate(fading, channel.gain, 3)
    h_hat = (root * estimate).flatten(3).numpy()
    phase = noise.draw_phases(link.transport.parts.alignment.impairments, K, 3).numpy()
    budget = link.transport.budget.budget.numpy()
    drawn = link.draw_noise(P, 3)
    w = np.array(WEIGHTS) / sum(WEIGHTS)
    for s in range(2):
        u = x[s]
        if quadrature:
            u = u[:, :symbols] + 1j * np.pad(u[:, symbols:], ((0, 0), (0, 2 * symbols - P)))
        sent = u * (K * w[:, None] if weighting == "mean" else 1.0)
        np.testing.assert_allclose(saved["m"][s, 0], (np.abs(sent) ** 2).mean(1))
        for q, c in enumerate(used):
            here = np.flatnonzero(cell == c)
            a = np.sqrt(budget[s]) * h_hat[s, :, :, c].T  # [A, K]
            f = np.linalg.eigh(a @ a.conj().T)[1][:, -1]
            f = f * np.exp(-1j * np.angle(f[0]))
            p = saved["p"][s, q] * np.exp(1j * phase[s])
            clean = h[s, :, :, c].T @ (p[:, None] * sent[:, here])  # [A, symbols here]
            combined = f.conj() @ clean / math.sqrt(saved["eta"][s, q])
            on = saved["active"][s, q]
            unit = 1 / (K * w[on].sum()) if weighting == "mean" else 1.0
            spread = 1 / math.sqrt(saved["eta"][s, q])
            expected = (combined.real + drawn[s, here] * spread) * unit
            np.testing.assert_allclose(got[s, here], expected, rtol=1e-5, atol=1e-6)
            if quadrature:
                second = here[here + symbols < P]
                keep = here + symbols < P
                expected = (combined.imag[keep] + drawn[s, second + symbols] * spread) * unit
                np.testing.assert_allclose(got[s, second + symbols], expected, rtol=1e-5, atol=1e-6)
            scalar = f.conj() @ h[s, :, :, c].T * np.exp(1j * phase[s])
            np.testing.assert_allclose(saved["h"][s, q], scalar, rtol=1e-5, atol=1e-6)
    assert report.symbols.tolist() == [symbols] * 2
    energy = (np.abs(saved["p"]) ** 2).max(1) * saved["m"][:, 0]
    assert (report.power.numpy() <= energy + 1e-9).all()


@pytest.mark.parametrize(("normalise", "quadrature"), [("payload", True), ("block", False)])
def test_deviations_from_the_mean(normalise: str, quadrature: bool) -> None:
    """What is sent has mean zero in a normalised stretch, and less power; the estimate without
    noise is the same, and the means are counted."""
    blocks = {"a": draw_updates(K, 6) + 3.0, "b": draw_updates(K, 11, 1) - 7.0}
    reports = []
    for centre in (False, True):
        options = {"normalise": normalise, "centre": centre, "quadrature": quadrature}
        link = make_bench("ci", snr_db=300.0, **options)
        received, report = link.deliver((Group(blocks),), make_cohort(weight=WEIGHTS))
        w = torch.tensor(WEIGHTS, dtype=torch.float64)
        for name, block in blocks.items():
            mean = (w[:, None] * block).sum(0) / w.sum()
            torch.testing.assert_close(received.mean[0][name][0], mean)
        reports.append(report)
    plain, centred = reports
    assert (centred.saved_tensors["m/0"] < plain.saved_tensors["m/0"]).all()
    assert torch.equal(centred.side_symbols, 2 * plain.side_symbols)
    if normalise == "block":
        rows = (K * w / w.sum())[:, None] * blocks["b"]
        torch.testing.assert_close(centred.saved_tensors["m/0"][0, 1], rows.var(1, correction=0))
