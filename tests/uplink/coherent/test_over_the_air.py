"""The over-the-air uplink against a plain complex simulation, closed forms, and means by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from support.link_bench import POLICIES, WEIGHTS, draw_updates, make_bench, make_cohort
from twins.over_the_air import plain

from otafl.core.contracts import Group

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


@pytest.mark.parametrize("devices", [4, 25])
def test_one_noise_whatever_the_number_of_devices(devices: int) -> None:
    """Equal channels, inversion: K^2 eta error / N is chi-square over 20,000 symbols, mean 1. Level
    1e-4 two-sided. Noise once per device would give K."""
    reals = 20_000
    link = make_bench("ci", devices=devices, fading=False)
    _, report = link.deliver(
        (Group({"a": draw_updates(devices, reals)}),), make_cohort((devices,), devices)
    )
    x = draw_updates(devices, reals).mean(0)
    scaled = (
        report.nmse[0] * x.square().sum() * devices**2 * report.saved_tensors["eta/0"][0, 0] / 0.5
    )
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], reals)
    assert low < scaled < high


@pytest.mark.parametrize("policy", ["full", "ci", "gbma"])
def test_mean_squared_error_of_uncorrelated_symbols(policy: str) -> None:
    """(1/K^2) [sum m (c - 1)^2 + N / eta] at 0, 10 and 20 dB, for one fading state and 20,000
    uncorrelated symbols of unequal power; level 1e-4 over the three, by the sample's own
    standard error."""
    devices, reals, levels = 10, 20_000, (0.0, 10.0, 20.0)
    rng = np.random.default_rng(devices)
    m = rng.uniform(0.2, 3.0, devices)
    x = torch.from_numpy(rng.standard_normal((devices, reals)) * np.sqrt(m)[:, None])
    link = make_bench(policy, (0, 0, 0), devices, levels)
    received, report = link.deliver(
        (Group({"a": x.repeat(3, 1)}),), make_cohort((devices,) * 3, devices)
    )
    error = (received.mean[0]["a"] - x.mean(0)).square().numpy()
    c, eta = report.saved_tensors["c/0"][:, 0].numpy(), report.saved_tensors["eta/0"][:, 0].numpy()
    law = ((m * (c - 1) ** 2).sum(1) + 0.5 / eta) / devices**2
    half = stats.norm.isf(1e-4 / 6) * error.std(1) / math.sqrt(reals)
    assert (np.abs(error.mean(1) - law) < half).all()


@pytest.mark.parametrize("policy", ["tci", "gbma"])
def test_aggregation_error_from_what_is_saved(policy: str) -> None:
    """nmse = |sum a_k x_k + n|^2 / |sum w_k x_k|^2, a_k = c_k w_k / W - w_k over who is on air: the
    Gram matrix gives all but the noise's share; saved c is Re(h p) / sqrt(eta)."""
    link = make_bench(policy, (0, 1))
    x = draw_updates(12, 40)
    _, report = link.deliver((Group({"a": x}),), make_cohort((6, 6), weight=WEIGHTS * 2))
    saved = {name: value.numpy() for name, value in report.saved_tensors.items()}
    for s in range(2):
        rows = x[6 * s : 6 * s + 6].numpy()
        np.testing.assert_allclose(saved["gram/0"][s, 0], rows @ rows.T, rtol=1e-9, atol=1e-9)
        w, on, eta = saved["weight/0"][s], saved["active/0"][s, 0], saved["eta/0"][s, 0]
        np.testing.assert_allclose(w, np.array(WEIGHTS) / sum(WEIGHTS))
        c = (saved["h/0"][s, 0] * saved["p/0"][s, 0]).real / math.sqrt(eta)
        np.testing.assert_allclose(saved["c/0"][s, 0], c, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(saved["m/0"][s, 0], ((6 * w[:, None] * rows) ** 2).mean(1))
        share = w[on].sum()
        a = np.where(on, c * w / share, 0) - w
        noise = link.draw_noise(40)[s] / (6 * share * math.sqrt(eta))
        squared = a @ saved["gram/0"][s, 0] @ a + 2 * (a @ rows) @ noise + noise @ noise
        exact = w @ saved["gram/0"][s, 0] @ w
        assert report.nmse[s].item() == pytest.approx(squared / exact, rel=1e-9)


def test_stacked_is_alone() -> None:
    """Also with other numbers of devices in the other trials, and a trial without any."""
    policy, counts = "tci", (4, 2, 0, 6)
    x, weight = draw_updates(12, 5), (WEIGHTS * 2)
    stack = make_bench(policy, (0, 1, 2, 3))
    received, report = stack.deliver((Group({"a": x}),), make_cohort(counts, weight=weight), 2)
    assert received.any_delivered is not None
    first = 0
    for s, count in enumerate(counts):
        if not count:
            assert not received.any_delivered[s]
            assert report.symbols[s] == report.energy_j[s].sum() == report.participants[s] == 0
            assert (received.mean[0]["a"][s] == 0).all()
            continue
        rows = slice(first, first + count)
        alone, cost = make_bench(policy, (s,)).deliver(
            (Group({"a": x[rows]}),), make_cohort((count,), weight=weight[rows]), 2
        )
        torch.testing.assert_close(received.mean[0]["a"][s], alone.mean[0]["a"][0])
        torch.testing.assert_close(received.group_weight[0][s], alone.group_weight[0][0])
        torch.testing.assert_close(report.energy_j[s], cost.energy_j[0])
        torch.testing.assert_close(report.nmse[s], cost.nmse[0])
        assert bool(received.any_delivered[s]) == (
            alone.any_delivered is None or bool(alone.any_delivered[0])
        )
        first += count


@pytest.mark.parametrize("policy", ["tci", "gbma"])
def test_masked_mean_against_the_plain_simulation(policy: str) -> None:
    """What a device does not know it sends as zero; the sum is divided by the weight on air that
    knows the coordinate."""
    x, w = draw_updates(6, 10).numpy(), np.array(WEIGHTS)
    mask = (np.arange(10) < np.array([[10], [8], [6], [4], [2], [0]]) + 1).astype(float)
    link = make_bench(policy)
    group = Group({"a": torch.from_numpy(x)}, mask={"a": torch.from_numpy(mask)})
    received, report = link.deliver((group,), make_cohort(weight=WEIGHTS))
    h, on = (
        report.saved_tensors["h/0"][0, 0].numpy(),
        report.saved_tensors["active/0"][0, 0].numpy(),
    )
    total = plain(policy, x * mask, w, h, h, link.draw_noise(10)[0], link.budget[0].item())
    knows = (w[on, None] * mask[on]).sum(0) / w.sum()
    expected = np.where(knows > 0, total * w[on].sum() / w.sum() / np.maximum(knows, 1e-9), 0)
    np.testing.assert_allclose(received.mean[0]["a"][0].numpy(), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(received.group_weight[0]["a"][0].numpy(), knows, atol=1e-12)


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
