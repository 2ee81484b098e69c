"""Powers, energies and airtimes of the over-the-air uplink, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special
from support.link_bench import WEIGHTS, draw_updates, make_bench, make_cohort
from twins.over_the_air import plain

from otafl.core.contracts import Group, LinkReport

pytestmark = pytest.mark.exact


def energy_of_rows(report: LinkReport, x: np.ndarray, group: int = 0) -> np.ndarray:
    """[K]: |p|^2 |K w x|^2 of the first trial, from saved p, one segment."""
    w = report.saved_tensors[f"weight/{group}"][0].numpy()
    p = report.saved_tensors[f"p/{group}"][0, 0].numpy()
    return np.abs(p) ** 2 * ((len(x) * w[:, None] * x) ** 2).sum(1)


@pytest.mark.parametrize("policy", ["ci", "gbma"])
def test_power_energy_and_airtime_by_hand(policy: str) -> None:
    """Default 20 dBm = 0.1 W is the budget of 10 (10 dB): one noise unit is 0.01 W. 12 symbols at
    1 MHz last 12 us. Joules = watts x airtime of who is on air."""
    link = make_bench(policy)
    x = draw_updates(6, 12)
    _, report = link.deliver((Group({"a": x}),), make_cohort(weight=WEIGHTS))
    energy = energy_of_rows(report, x.numpy())
    np.testing.assert_allclose(report.energy_j[0].numpy(), energy * 0.01 * 1e-6, rtol=1e-9)
    np.testing.assert_allclose(report.power[0].numpy(), energy / 12, rtol=1e-9)
    assert report.airtime_s[0].item() == pytest.approx(12e-6)
    np.testing.assert_allclose(
        report.energy_j[0].numpy(), report.power[0].numpy() * 0.01 * 12e-6, rtol=1e-9
    )
    assert report.symbols[0] == 12
    assert report.bits[0] == 0
    assert report.participants[0] == report.saved_tensors["active/0"].sum()


@pytest.mark.parametrize(
    ("policy", "normalise", "variance"),
    [("full", "block", 0.2), ("ci", "block", 0.0), ("gbma", "payload", 0.2)],
)
def test_peak_policies_stay_within_the_budget(policy: str, normalise: str, variance: float) -> None:
    """Unequal weights and powers, blocks of very different scale, two groups, several rounds: each
    device's mean symbol power is within P in every block, and `full` is at P."""
    link = make_bench(policy, (0, 1), variance=variance, normalise=normalise)
    a, b, c = draw_updates(12, 8), 1e3 * draw_updates(12, 5, 1), 1e-2 * draw_updates(12, 3, 2)
    payload = (Group({"a": a, "b": b}), Group({"c": c}, weighting="none"))
    for round in range(5):
        _, report = link.deliver(payload, make_cohort((6, 6), weight=WEIGHTS * 2), round)
        assert (report.power <= link.budget[:, None] * (1 + 1e-9)).all()
        for group in (0, 1):
            saved = (report.saved_tensors[f"{name}/{group}"] for name in ("p", "m"))
            used = next(saved).abs().square() * next(saved)
            assert (used <= link.budget[:, None, None] * (1 + 1e-9)).all()
        if policy == "full":
            torch.testing.assert_close(report.power, link.budget[:, None].expand(2, 6))


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


@pytest.mark.parametrize("normalise", ["payload", "block"])
def test_total_energy_bounds_the_whole_payload(normalise: str) -> None:
    """At full power the energy of a device over both groups is P, whatever the segments; the
    receive scalar is the minimiser at the power that a symbol then has."""
    link = make_bench("full", normalise=normalise, snr_convention="total_energy", snr_db=20.0)
    a, b, c = draw_updates(6, 8), 1e2 * draw_updates(6, 4, 1), draw_updates(6, 8, 2)
    payload = (Group({"a": a, "b": b}), Group({"c": c}))
    received, report = link.deliver(payload, make_cohort())
    torch.testing.assert_close(report.power[0] * 20, torch.full((6,), 100.0).double())
    h = report.saved_tensors["h/0"][0, 0].numpy()
    expected = plain("full", c.numpy(), np.ones(6), h, h, link.draw_noise(8, 0, 1)[0], 100.0 / 20)
    np.testing.assert_allclose(received.mean[1]["c"][0].numpy(), expected, rtol=1e-6)


def test_total_energy_counts_what_a_device_sends() -> None:
    """Device 0 sends 10 symbols, device 1 sends 30 (both groups): both radiate P in all."""
    link = make_bench("full", devices=2, snr_convention="total_energy", snr_db=10.0)
    groups = (
        Group({"a": draw_updates(2, 10)}),
        Group({"b": draw_updates(1, 20)}, row_index=torch.tensor([1])),
    )
    _, report = link.deliver(groups, make_cohort((2,), 2))
    torch.testing.assert_close(report.energy_j[0], torch.full((2,), 10 * 0.01 * 1e-6).double())
