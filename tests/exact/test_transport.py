"""Uplinks against a plain complex simulation, closed forms, and costs worked by hand.

Mutations that make a test here fail: one noise per device, noise of variance sigma^2 for
sigma^2 / 2, the same noise for all blocks or groups, all devices for those that take part in K,
weights not renormalised over who is on air, the estimate used in place of h, the conjugate of h
missing, a root of eta forgotten, weights that m does not square, energy without m, total energy
not spread over the payload's symbols, masked means over all weights or left as sums, repeated rows
summed, a TDMA slot as long as its longest turn, the rate's factor ignored, noise units for watts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.link_bench import POLICIES, WEIGHTS, bench, cohort, updates
from scipy import special, stats

from otafl.core.contracts import Group, LinkReport


def scalars(
    policy: str,
    h: np.ndarray,
    m: np.ndarray,
    budget: float,
    linear: bool,
    inverse: float,
    variance: float = 0.0,
) -> tuple[np.ndarray, float, np.ndarray]:
    """p [K], eta, on air [K] of one trial, by the table of the policies; threshold 0.3."""
    g = np.abs(h) ** 2
    on = np.ones(len(h), dtype=bool)
    if policy == "full":
        root_q = np.sqrt(budget * g / m)
        root = (0.5 + (m * root_q**2).sum()) / (m * root_q).sum()
        return np.sqrt(budget / m) * np.exp(-1j * np.angle(h)), root**2, on
    if policy == "ci":
        eta = (budget * g / m).min()
        return math.sqrt(eta) / h, eta, on
    if policy == "tci":
        rho, on = budget / (inverse * m.max()), g >= 0.3
        return np.where(on, math.sqrt(rho) * h.conj() / g, 0), rho, on
    energy = budget / m.max()
    return (
        math.sqrt(energy) * np.exp(-1j * np.angle(h)),
        energy * (math.pi / 4 / (1 + variance) if linear else 1.0),
        on,
    )


def plain(
    policy: str,
    x: np.ndarray,
    w: np.ndarray,
    h: np.ndarray,
    h_hat: np.ndarray,
    noise: np.ndarray,
    budget: float,
    linear: bool = True,
    variance: float = 0.0,
) -> np.ndarray:
    """[P]: y = sum h p s + z with complex noise, Re, scaled; device by device."""
    k = len(x)
    s = x * (k * w / w.sum())[:, None] if linear else x
    inverse = special.exp1(0.3 / (1 + variance)) / (1 + variance)
    p, eta, on = scalars(policy, h_hat, (s**2).mean(1), budget, linear, inverse, variance)
    y = noise + 1j * np.random.default_rng(9).standard_normal(x.shape[1])
    for i in np.flatnonzero(on):
        y = y + h[i] * p[i] * s[i]
    if not linear:
        return y.real / math.sqrt(eta)
    return y.real / math.sqrt(eta) / (k * w[on].sum() / w.sum())


@pytest.mark.parametrize("variance", [0.0, 0.1])
@pytest.mark.parametrize("weighting", ["equal", "unequal", "none"])
@pytest.mark.parametrize("normalise", ["payload", "block"])
@pytest.mark.parametrize("policy", POLICIES)
def test_against_the_plain_complex_simulation(
    policy: str, normalise: str, weighting: str, variance: float
) -> None:
    """Two blocks of very different scale, three trials, two rounds, our noise in both."""
    link = bench(policy, (0, 1, 2), variance=variance, normalise=normalise)
    weight = np.array([1.0] * 6 if weighting != "unequal" else WEIGHTS)
    who = cohort((6, 6, 6), weight=list(weight) * 3)
    blocks = {"a": updates(18, 6).view(18, 2, 3), "b": 1e-3 * updates(18, 11, 1)}
    group = Group(blocks, weighting="none" if weighting == "none" else "mean")
    x = np.concatenate([blocks["a"].flatten(1).numpy(), blocks["b"].numpy()], 1).reshape(3, 6, 17)
    for round in (0, 70):
        received, report = link.deliver((group,), who, round)
        got = torch.cat([b.flatten(1) for b in received.mean[0].values()], 1).numpy()
        h, h_hat = (report.saved[f"{name}/0"].numpy() for name in ("h", "h_hat"))
        noise = link.noise(17, round)
        columns = [slice(0, 17)] if normalise == "payload" else [slice(0, 6), slice(6, 17)]
        for s in range(3):
            for part in columns:
                expected = plain(
                    policy, x[s][:, part], weight, h[s, 0], h_hat[s, 0], noise[s, part],
                    link.budget[s].item(), weighting != "none", variance,
                )  # fmt: skip
                np.testing.assert_allclose(got[s, part], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_only_who_takes_part_counts(policy: str) -> None:
    """Four of the six devices are in the cohort and one of them does not send: K is 3."""
    link, x = bench(policy), updates(4, 9)
    on = [True, False, True, True]
    who = cohort((4,), weight=WEIGHTS[:4], sends=on)
    received, report = link.deliver((Group({"a": x}),), who)
    h = report.saved["h/0"][0, 0, :4].numpy()[on]
    w, noise = np.array(WEIGHTS[:4])[on], link.noise(9)[0]
    expected = plain(policy, x.numpy()[on], w, h, h, noise, link.budget[0].item())
    np.testing.assert_allclose(received.mean[0]["a"][0].numpy(), expected, rtol=1e-6, atol=1e-9)


def test_link_channel_is_the_channels() -> None:
    link = bench("ci", (0, 1), variance=0.1)
    _, report = link.deliver((Group({"a": updates(12, 4)}),), cohort((6, 6)), 3)
    h = link.channel.state(3).h
    torch.testing.assert_close(report.saved["h/0"][:, 0], h[:, :, 0, 0, 0])
    assert (report.saved["h_hat/0"] - report.saved["h/0"]).abs().min() > 0


@pytest.mark.parametrize("devices", [1, 4, 25])
def test_one_noise_whatever_the_number_of_devices(devices: int) -> None:
    """Equal channels, inversion: K^2 eta error / N is chi-square over 20,000 symbols, mean 1. Level
    1e-4 two-sided. Noise once per device would give K."""
    reals = 20_000
    link = bench("ci", devices=devices, fading=False)
    _, report = link.deliver((Group({"a": updates(devices, reals)}),), cohort((devices,), devices))
    x = updates(devices, reals).mean(0)
    scaled = report.nmse[0] * x.square().sum() * devices**2 * report.saved["eta/0"][0, 0] / 0.5
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], reals)
    assert low < scaled < high


@pytest.mark.parametrize("devices", [2, 10, 40])
@pytest.mark.parametrize("policy", ["full", "ci", "gbma"])
def test_mean_squared_error_of_uncorrelated_symbols(policy: str, devices: int) -> None:
    """(1/K^2) [sum m (c - 1)^2 + N / eta] at 0, 10 and 20 dB, for one fading state and 20,000
    uncorrelated symbols of unequal power; level 1e-4 over the three, by the sample's own
    standard error."""
    reals, levels = 20_000, (0.0, 10.0, 20.0)
    rng = np.random.default_rng(devices)
    m = rng.uniform(0.2, 3.0, devices)
    x = torch.from_numpy(rng.standard_normal((devices, reals)) * np.sqrt(m)[:, None])
    link = bench(policy, (0, 0, 0), devices, levels)
    received, report = link.deliver(
        (Group({"a": x.repeat(3, 1)}),), cohort((devices,) * 3, devices)
    )
    error = (received.mean[0]["a"] - x.mean(0)).square().numpy()
    c, eta = report.saved["c/0"][:, 0].numpy(), report.saved["eta/0"][:, 0].numpy()
    law = ((m * (c - 1) ** 2).sum(1) + 0.5 / eta) / devices**2
    half = stats.norm.isf(1e-4 / 6) * error.std(1) / math.sqrt(reals)
    assert (np.abs(error.mean(1) - law) < half).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_aggregation_error_from_what_is_saved(policy: str) -> None:
    """nmse = |sum a_k x_k + n|^2 / |sum w_k x_k|^2, a_k = c_k w_k / W - w_k over who is on air: the
    Gram matrix gives all but the noise's share; saved c is Re(h p) / sqrt(eta)."""
    link = bench(policy, (0, 1))
    x = updates(12, 40)
    _, report = link.deliver((Group({"a": x}),), cohort((6, 6), weight=WEIGHTS * 2))
    saved = {name: value.numpy() for name, value in report.saved.items()}
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
        noise = link.noise(40)[s] / (6 * share * math.sqrt(eta))
        squared = a @ saved["gram/0"][s, 0] @ a + 2 * (a @ rows) @ noise + noise @ noise
        exact = w @ saved["gram/0"][s, 0] @ w
        assert report.nmse[s].item() == pytest.approx(squared / exact, rel=1e-9)


def test_error_over_several_groups_is_total_error_over_total_aggregate() -> None:
    link = bench("gbma")
    a, b = updates(6, 9), 5 * updates(6, 4, 1)
    received, report = link.deliver((Group({"a": a}), Group({"b": b})), cohort())
    off = [received.mean[0]["a"][0] - a.mean(0), received.mean[1]["b"][0] - b.mean(0)]
    error = sum(part.square().sum() for part in off)
    total = a.mean(0).square().sum() + b.mean(0).square().sum()
    torch.testing.assert_close(report.nmse[0], error / total)
    assert report.symbols[0] == 13
    assert report.side_symbols[0] == 12  # one mean power a device and group


@pytest.mark.parametrize("policy", POLICIES)
def test_stacked_is_alone(policy: str) -> None:
    """Also with other numbers of devices in the other trials, and a trial without any."""
    counts = (4, 2, 0, 6)
    x, weight = updates(12, 5), (WEIGHTS * 2)
    stack = bench(policy, (0, 1, 2, 3))
    received, report = stack.deliver((Group({"a": x}),), cohort(counts, weight=weight), 2)
    assert received.alive is not None
    first = 0
    for s, count in enumerate(counts):
        if not count:
            assert not received.alive[s]
            assert report.symbols[s] == report.energy_j[s].sum() == report.participants[s] == 0
            assert (received.mean[0]["a"][s] == 0).all()
            continue
        rows = slice(first, first + count)
        alone, cost = bench(policy, (s,)).deliver(
            (Group({"a": x[rows]}),), cohort((count,), weight=weight[rows]), 2
        )
        torch.testing.assert_close(received.mean[0]["a"][s], alone.mean[0]["a"][0])
        torch.testing.assert_close(received.count[0][s], alone.count[0][0])
        torch.testing.assert_close(report.energy_j[s], cost.energy_j[0])
        torch.testing.assert_close(report.nmse[s], cost.nmse[0])
        assert bool(received.alive[s]) == (alone.alive is None or bool(alone.alive[0]))
        first += count


NO_NOISE = 150.0
"""dB: the noise is then below 1e-7 of the signal, so that means can be worked by hand."""


def test_inversion_without_noise_is_the_exact_weighted_mean() -> None:
    x = updates(6, 8)
    received, _ = bench("ci", snr_db=NO_NOISE).deliver((Group({"a": x}),), cohort(weight=WEIGHTS))
    w = torch.tensor(WEIGHTS).double()
    torch.testing.assert_close(
        received.mean[0]["a"][0], (w[:, None] * x).sum(0) / w.sum(), rtol=0, atol=1e-6
    )
    assert received.alive is None


@pytest.mark.parametrize("transport", ["ideal", "over_the_air", "digital"])
def test_masked_mean_by_hand(transport: str) -> None:
    """Three devices of widths 4, 2, 1 and weights 1/2, 1/4, 1/4; the last coordinate is nobody's.
    Coordinate 1: (1/2 x 1 + 1/4 x 2) / (3/4) = 4/3."""
    link = bench("ci", devices=3, snr_db=NO_NOISE, transport=transport)
    x = torch.tensor([[1.0, 1, 1, 1, 9], [2, 2, 9, 9, 9], [4, 9, 9, 9, 9]]).double()
    mask = torch.tensor([[1.0, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    group = Group({"a": x.clone(), "b": x[:, :1].clone()}, mask={"a": mask})
    received, _ = link.deliver((group,), cohort((3,), 3, weight=[2.0, 1.0, 1.0]))
    hand = torch.tensor([2.0, 4 / 3, 1, 1, 0]).double()
    torch.testing.assert_close(received.mean[0]["a"][0], hand, rtol=0, atol=1e-6)
    torch.testing.assert_close(received.mean[0]["b"][0], hand[:1], rtol=0, atol=1e-6)
    count = received.count[0]
    assert isinstance(count, dict)
    assert count["a"][0].tolist() == [1.0, 0.75, 0.5, 0.5, 0.0]
    assert count["b"][0].tolist() == [1.0]


@pytest.mark.parametrize("policy", POLICIES)
def test_masked_mean_against_the_plain_simulation(policy: str) -> None:
    """What a device does not know it sends as zero; the sum is divided by the weight on air that
    knows the coordinate."""
    x, w = updates(6, 10).numpy(), np.array(WEIGHTS)
    mask = (np.arange(10) < np.array([[10], [8], [6], [4], [2], [0]]) + 1).astype(float)
    link = bench(policy)
    group = Group({"a": torch.from_numpy(x)}, mask={"a": torch.from_numpy(mask)})
    received, report = link.deliver((group,), cohort(weight=WEIGHTS))
    h, on = report.saved["h/0"][0, 0].numpy(), report.saved["active/0"][0, 0].numpy()
    total = plain(policy, x * mask, w, h, h, link.noise(10)[0], link.budget[0].item())
    knows = (w[on, None] * mask[on]).sum(0) / w.sum()
    expected = np.where(knows > 0, total * w[on].sum() / w.sum() / np.maximum(knows, 1e-9), 0)
    np.testing.assert_allclose(received.mean[0]["a"][0].numpy(), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(received.count[0]["a"][0].numpy(), knows, atol=1e-12)


@pytest.mark.parametrize("transport", ["ideal", "over_the_air", "digital"])
def test_who_does_not_send_is_left_out(transport: str) -> None:
    sends = [True, False, True, True, False, True]
    link = bench("ci", snr_db=NO_NOISE, transport=transport)
    x, w = updates(6, 7), torch.tensor(WEIGHTS).double()
    received, report = link.deliver((Group({"a": x}),), cohort(weight=WEIGHTS, sends=sends))
    keep = torch.tensor(sends)
    hand = (w[keep, None] * x[keep]).sum(0) / w[keep].sum()
    torch.testing.assert_close(received.mean[0]["a"][0], hand, rtol=0, atol=1e-6)
    assert report.participants[0] == 4
    assert (report.energy_j[0][~keep] == 0).all()
    assert (report.energy_j[0][keep] > 0).all()
    if received.each is not None:
        assert torch.equal(received.each[0]["a"], x[keep])


@pytest.mark.parametrize("transport", ["ideal", "over_the_air"])
def test_groups_of_some_rows_and_of_repeated_rows(transport: str) -> None:
    """Rows 0, 2, 5 of two trials of three; device 2 of trial 0 twice: it sends the mean of its
    rows, with its own weight."""
    link = bench("ci", (0, 1), 3, NO_NOISE, transport)
    x = updates(4, 5)
    group = Group({"a": x}, rows=torch.tensor([0, 2, 2, 5]))
    who = cohort((3, 3), 3, weight=[1.0, 7.0, 3.0, 7.0, 7.0, 2.0])
    received, report = link.deliver((group,), who)
    first = (1 * x[0] + 3 * (x[1] + x[2]) / 2) / 4
    expected = torch.stack([first, x[3]])
    torch.testing.assert_close(received.mean[0]["a"], expected, rtol=0, atol=1e-6)
    assert report.participants.tolist() == [2, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_of_a_groups_rows_does_not_matter(policy: str) -> None:
    link, x = bench(policy, (0, 1), 3), updates(6, 5)
    who = cohort((3, 3), 3, weight=WEIGHTS)
    straight, cost = link.deliver((Group({"a": x}),), who)
    order = torch.tensor([2, 0, 1, 4, 5, 3])
    mixed, same = link.deliver((Group({"a": x[order]}, rows=order),), who)
    torch.testing.assert_close(mixed.mean[0]["a"], straight.mean[0]["a"])
    torch.testing.assert_close(same.energy_j, cost.energy_j)


def test_repeated_rows_with_masks_are_averaged_where_they_are_known() -> None:
    x = torch.tensor([[2.0, 2.0, 2.0], [6.0, 6.0, 6.0], [1.0, 1.0, 1.0]]).double()
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    group = Group({"a": x}, rows=torch.tensor([0, 0, 1]), mask={"a": mask})
    received, _ = bench(transport="ideal", devices=2).deliver((group,), cohort((2,), 2))
    assert received.mean[0]["a"][0].tolist() == [2.5, 1.5, 0.0]  # (4 + 1)/2, (2 + 1)/2


def test_the_ideal_route_is_exact_and_free() -> None:
    link = bench("gbma", snr_db=-20.0)
    x, bias = updates(6, 7), updates(6, 3, 1)
    group = Group({"b": bias}, route="ideal", reason="a test")
    received, report = link.deliver((Group({"a": x}), group), cohort(weight=WEIGHTS))
    w = torch.tensor(WEIGHTS).double()
    torch.testing.assert_close(received.mean[1]["b"][0], (w[:, None] * bias).sum(0) / w.sum())
    without, cost = link.deliver((Group({"a": x}),), cohort(weight=WEIGHTS))
    assert torch.equal(received.mean[0]["a"], without.mean[0]["a"])
    for name in ("symbols", "side_symbols", "energy_j", "airtime_s", "nmse", "power"):
        assert torch.equal(getattr(report, name), getattr(cost, name))


def test_everybody_silent_is_a_no_op() -> None:
    """A threshold that nobody meets: nothing arrives, nothing is radiated, nothing is NaN."""
    link = bench("tci", (0, 1), threshold=60.0)
    received, report = link.deliver((Group({"a": updates(12, 5)}),), cohort((6, 6)))
    assert received.alive is not None
    assert received.alive.tolist() == [False, False]
    assert (received.mean[0]["a"] == 0).all()
    assert received.count[0].tolist() == [0, 0]
    assert report.participants.tolist() == [0, 0]
    assert (report.energy_j == 0).all()
    torch.testing.assert_close(report.nmse, torch.ones(2).double())


def test_noise_differs_between_rounds_groups_and_trials() -> None:
    """Zero updates but for one symbol: what is left of the others is the noise."""
    link = bench("ci", (0, 1), snr_db=0.0, fading=False)
    x = torch.zeros(12, 50).double()
    x[:, 0] = 1.0
    seen = []
    for round in (0, 1):
        received, _ = link.deliver((Group({"a": x}), Group({"a": x})), cohort((6, 6)), round)
        seen += [row[1:] for mean in received.mean for row in mean["a"]]
    assert len(torch.unique(torch.cat(seen))) == 8 * 49


# Powers, energies and airtimes


def energy_of_rows(report: LinkReport, x: np.ndarray, group: int = 0) -> np.ndarray:
    """[K]: |p|^2 |K w x|^2 of the first trial, from saved p, one segment."""
    w = report.saved[f"weight/{group}"][0].numpy()
    p = report.saved[f"p/{group}"][0, 0].numpy()
    return np.abs(p) ** 2 * ((len(x) * w[:, None] * x) ** 2).sum(1)


@pytest.mark.parametrize("policy", POLICIES)
def test_power_energy_and_airtime_by_hand(policy: str) -> None:
    """Default 20 dBm = 0.1 W is the budget of 10 (10 dB): one noise unit is 0.01 W. 12 symbols at
    1 MHz last 12 us. Joules = watts x airtime of who is on air."""
    link = bench(policy)
    x = updates(6, 12)
    _, report = link.deliver((Group({"a": x}),), cohort(weight=WEIGHTS))
    energy = energy_of_rows(report, x.numpy())
    np.testing.assert_allclose(report.energy_j[0].numpy(), energy * 0.01 * 1e-6, rtol=1e-9)
    np.testing.assert_allclose(report.power[0].numpy(), energy / 12, rtol=1e-9)
    assert report.airtime_s[0].item() == pytest.approx(12e-6)
    np.testing.assert_allclose(
        report.energy_j[0].numpy(), report.power[0].numpy() * 0.01 * 12e-6, rtol=1e-9
    )
    assert report.symbols[0] == 12
    assert report.bits[0] == 0
    assert report.participants[0] == report.saved["active/0"].sum()


@pytest.mark.parametrize("normalise", ["payload", "block"])
@pytest.mark.parametrize("policy", ["full", "ci", "gbma"])
@pytest.mark.parametrize("variance", [0.0, 0.2])
def test_peak_policies_stay_within_the_budget(policy: str, normalise: str, variance: float) -> None:
    """Unequal weights and powers, blocks of very different scale, two groups, several rounds: each
    device's mean symbol power is within P in every block, and `full` is at P."""
    link = bench(policy, (0, 1), variance=variance, normalise=normalise)
    a, b, c = updates(12, 8), 1e3 * updates(12, 5, 1), 1e-2 * updates(12, 3, 2)
    payload = (Group({"a": a, "b": b}), Group({"c": c}, weighting="none"))
    for round in range(5):
        _, report = link.deliver(payload, cohort((6, 6), weight=WEIGHTS * 2), round)
        assert (report.power <= link.budget[:, None] * (1 + 1e-9)).all()
        for group in (0, 1):
            saved = (report.saved[f"{name}/{group}"] for name in ("p", "m"))
            used = next(saved).abs().square() * next(saved)
            assert (used <= link.budget[:, None, None] * (1 + 1e-9)).all()
        if policy == "full":
            torch.testing.assert_close(report.power, link.budget[:, None].expand(2, 6))


def test_blockwise_scaling_helps_a_small_block() -> None:
    """With one scalar for all, noise is the same in both blocks; with one a block, noise is in
    proportion to the block. Each costs its side information."""
    blocks = {"a": updates(6, 400), "b": 1e-3 * updates(6, 400, 1)}
    exact = blocks["b"].mean(0)
    error, side = {}, {}
    for normalise in ("payload", "block"):
        received, report = bench("ci", normalise=normalise).deliver((Group(blocks),), cohort())
        error[normalise] = (received.mean[0]["b"][0] - exact).square().mean().item()
        side[normalise] = report.side_symbols[0].item()
    assert error["block"] < 1e-4 * error["payload"]
    assert side == {"payload": 6, "block": 12}


@pytest.mark.parametrize("policy", ["gbma", "tci"])
def test_total_energy_is_the_papers_literal_scaling(policy: str) -> None:
    """gamma = P sigma^2 / (c_p mean_k |S_k|^2), S_k the whole payload, c_p = 1 or E1(0.3)."""
    link = bench(
        policy, policy_options={"reference": "mean"}, snr_convention="total_energy", snr_db=25.0
    )
    x = {"u": updates(6, 12), "v": 0.1 * updates(6, 20, 1)}
    _, report = link.deliver((Group(x, weighting="none"),), cohort())
    energy = torch.cat(list(x.values()), 1).square().sum(1).mean().item()
    gamma = 10**2.5 / energy / (1.0 if policy == "gbma" else special.exp1(0.3))
    assert report.saved["eta/0"].item() == pytest.approx(gamma)


@pytest.mark.parametrize("normalise", ["payload", "block"])
def test_total_energy_bounds_the_whole_payload(normalise: str) -> None:
    """At full power the energy of a device over both groups is P, whatever the segments; the
    receive scalar is the minimiser at the power that a symbol then has."""
    link = bench("full", normalise=normalise, snr_convention="total_energy", snr_db=20.0)
    a, b, c = updates(6, 8), 1e2 * updates(6, 4, 1), updates(6, 8, 2)
    payload = (Group({"a": a, "b": b}), Group({"c": c}))
    received, report = link.deliver(payload, cohort())
    torch.testing.assert_close(report.power[0] * 20, torch.full((6,), 100.0).double())
    h = report.saved["h/0"][0, 0].numpy()
    expected = plain("full", c.numpy(), np.ones(6), h, h, link.noise(8, 0, 1)[0], 100.0 / 20)
    np.testing.assert_allclose(received.mean[1]["c"][0].numpy(), expected, rtol=1e-6)


def test_total_energy_counts_what_a_device_sends() -> None:
    """Device 0 sends 10 symbols, device 1 sends 30 (both groups): both radiate P in all."""
    link = bench("full", devices=2, snr_convention="total_energy", snr_db=10.0)
    groups = Group({"a": updates(2, 10)}), Group({"b": updates(1, 20)}, rows=torch.tensor([1]))
    _, report = link.deliver(groups, cohort((2,), 2))
    torch.testing.assert_close(report.energy_j[0], torch.full((2,), 10 * 0.01 * 1e-6).double())


def test_ideal_is_charged_as_one_slot_at_full_power() -> None:
    """12 symbols at 1 MHz and 0.1 W: 12 us and 1.2 uJ a device."""
    x = updates(6, 12)
    received, report = bench(transport="ideal").deliver((Group({"a": x}),), cohort())
    torch.testing.assert_close(received.mean[0]["a"][0], x.mean(0))
    assert received.each is not None
    assert torch.equal(received.each[0]["a"], x)
    assert report.airtime_s[0].item() == pytest.approx(12e-6)
    torch.testing.assert_close(report.energy_j[0], torch.full((6,), 1.2e-6).double())
    torch.testing.assert_close(report.power[0], torch.full((6,), 10.0).double())
    assert report.nmse[0] == report.side_symbols[0] == 0


@pytest.mark.parametrize(("rate_factor", "bits"), [(1.0, None), (0.5, None), (1.0, 8)])
def test_digital_by_hand(rate_factor: float, bits: int | None) -> None:
    """SNR 3: 2 bits a symbol. 10 reals: 320 bits (or 10 x 8 + 64 = 144) take 160 (72) symbols of
    each of two devices in turn; each radiates 0.1 W while it is its turn. Half the rate, twice
    the time."""
    link = bench(
        "full", devices=2, snr_db=10 * math.log10(3), fading=False, transport="digital",
        rate_factor=rate_factor, bits=bits,
    )  # fmt: skip
    x = updates(2, 10)
    received, report = link.deliver((Group({"a": x}),), cohort((2,), 2))
    each = (320 if bits is None else 144) / 2 / rate_factor
    assert report.bits[0].item() == pytest.approx(640 if bits is None else 288)
    assert report.symbols[0].item() == pytest.approx(2 * each)
    assert report.airtime_s[0].item() == pytest.approx(2 * each * 1e-6)
    torch.testing.assert_close(report.energy_j[0], torch.full((2,), 0.1 * each * 1e-6).double())
    torch.testing.assert_close(report.power[0], torch.full((2,), 3.0).double())
    torch.testing.assert_close(received.mean[0]["a"][0], x.mean(0))


def test_digital_rate_follows_each_channel() -> None:
    link = bench("full", transport="digital", snr_db=7.0)
    _, report = link.deliver((Group({"a": updates(6, 10)}),), cohort(), 4)
    g = link.channel.state(4).h.abs().square().view(6).numpy()
    symbols = 320 / np.log2(1 + 10**0.7 * g)
    np.testing.assert_allclose(report.energy_j[0].numpy(), 0.1 * symbols * 1e-6, rtol=1e-9)
    assert report.symbols[0].item() == pytest.approx(symbols.sum())
