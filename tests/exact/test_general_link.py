"""The over-the-air uplink in general: several antennas, coherence blocks and sub-carrier groups,
both quadratures, deviations from a mean, and what bends a signal, against a simulation of the
complex baseband written symbol by symbol.

Mutations that make a test here fail: the conjugate of the combiner missing, noise of every antenna
added, a cell's channel used for its neighbour, the last cell's remainder lost, the second
quadrature's cross-talk with the wrong sign or left out, m of one real for a symbol of two, means
not given back or given back for silent devices, a carrier offset from symbol 1 on or without 2 pi,
the previous symbol's share of a late device left out, the aligned sample's noise not enlarged,
stretches between edges in the wrong order, clipping after the channel, the converter's range per
device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.link_bench import WEIGHTS, Bench, bench, cohort, given, updates, with_setup
from scipy import stats

from otafl.core.contracts import Group, LinkReport
from otafl.receivers.config import EigenConfig, MrcConfig, UniformForcingConfig
from otafl.receivers.eigen import Eigen
from otafl.receivers.mrc import Mrc
from otafl.receivers.uniform_forcing import UniformForcing
from otafl.transport.config import ImpairmentsConfig
from otafl.transport.impairments import Impairments

K = 6
P = 41


def impaired(link: Bench, **settings: Any) -> Bench:
    """The same uplink with these impairments in every trial."""
    size = len(link.budget)
    made = Impairments.of([ImpairmentsConfig(**settings)] * size, None, link.streams)
    return with_setup(link, impairments=made)


def deliver(
    link: Bench, weighting: str = "mean", round: int = 3, reals: int = P
) -> tuple[np.ndarray, np.ndarray, LinkReport]:
    """Estimate [S, P], signals [S, K, P] and report of one group with unequal weights."""
    size = len(link.budget)
    x = updates(K * size, reals)
    group = Group({"a": x}, weighting="none" if weighting == "none" else "mean")
    received, report = link.deliver((group,), cohort((K,) * size, weight=WEIGHTS * size), round)
    return received.mean[0]["a"].numpy(), x.numpy().reshape(size, K, reals), report


def cells_of(block_symbols: int | None, blocks: int, groups: int, symbols: int) -> np.ndarray:
    """[symbols] the (b, f) of each channel use, as one number: a block's groups fill one after the
    other, evenly."""
    length = block_symbols or symbols
    out = []
    for i in range(symbols):
        block, inside = divmod(i, length)
        here = min(length, symbols - block * length)
        group = next(f for f in range(groups) if inside < here * (f + 1) // groups)
        out.append(block * groups + group)
    return np.array(out)


GRIDS = [(None, 1, 1), (None, 1, 4), (10, 5, 1), (16, 3, 4), (1, 41, 1), (2, 21, 2)]


@pytest.mark.parametrize("weighting", ["mean", "none"])
@pytest.mark.parametrize("quadrature", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("policy", ["full", "ci", "tci"])
def test_against_the_complex_baseband(
    policy: str, grid: tuple[int | None, int, int], quadrature: bool, weighting: str
) -> None:
    """y_a[i] = sum_k sqrt(gain) h_ka[i] p_k[i] x_k[i] + z_a[i] of three antennas, combined by the
    first eigenvector of each cell, from the saved p and eta; imperfect estimates, residual
    phases."""
    block_symbols, blocks, groups = grid
    link = bench(policy, (0, 1), variance=0.1, quadrature=quadrature)
    link = given(with_setup(link, receiver=Eigen(EigenConfig())), 3, blocks, groups, block_symbols)
    link = impaired(link, residual_phase_rad=0.4)
    got, x, report = deliver(link, weighting)
    symbols = -(-P // 2) if quadrature else P
    cell = cells_of(block_symbols, blocks, groups, symbols)
    used = sorted(set(cell))
    saved = {name.split("/")[0]: value.numpy() for name, value in report.saved.items()}
    channel = link.channel.state(3)
    root, fading = channel.gain.sqrt()[..., None, None, None], channel.over(symbols)
    h = (root * fading).flatten(3).numpy()
    estimate = link.transport.setup.csi.estimate(fading, channel.gain, 3)
    h_hat = (root * estimate).flatten(3).numpy()
    phase = link.transport.setup.impairments.phases(K, 3).numpy()
    budget = link.transport.setup.budget.budget.numpy()
    noise = link.noise(P, 3)
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
            expected = (combined.real + noise[s, here] * spread) * unit
            np.testing.assert_allclose(got[s, here], expected, rtol=1e-5, atol=1e-6)
            if quadrature:
                second = here[here + symbols < P]
                keep = here + symbols < P
                expected = (combined.imag[keep] + noise[s, second + symbols] * spread) * unit
                np.testing.assert_allclose(got[s, second + symbols], expected, rtol=1e-5, atol=1e-6)
            scalar = f.conj() @ h[s, :, :, c].T * np.exp(1j * phase[s])
            np.testing.assert_allclose(saved["h"][s, q], scalar, rtol=1e-5, atol=1e-6)
    assert report.symbols.tolist() == [symbols] * 2
    energy = (np.abs(saved["p"]) ** 2).max(1) * saved["m"][:, 0]
    assert (report.power.numpy() <= energy + 1e-9).all()


@pytest.mark.parametrize("policy", ["full", "ci", "gbma"])
@pytest.mark.parametrize("quadrature", [False, True])
def test_mean_power_of_the_payload_is_within_the_budget(policy: str, quadrature: bool) -> None:
    """Over cells of very different symbol power too, where m is that of the whole payload."""
    link = given(bench(policy, quadrature=quadrature), 1, 5, 2, 8)
    x = updates(K, 40) * torch.logspace(-2, 1, 40, dtype=torch.float64)
    _, report = link.deliver((Group({"a": x}),), cohort())
    assert (report.power / link.transport.setup.budget.budget <= 1 + 1e-6).all()
    spent = report.energy_j / (0.1 * report.symbols[:, None] * 1e-6)
    assert (spent <= 1 + 1e-6).all()


@pytest.mark.parametrize("quadrature", [False, True])
@pytest.mark.parametrize("normalise", ["payload", "block"])
def test_deviations_from_the_mean(normalise: str, quadrature: bool) -> None:
    """What is sent has mean zero in a normalised stretch, and less power; the estimate without
    noise is the same, and the means are counted."""
    if quadrature and normalise == "block":
        pytest.skip("symbols pair reals of the whole payload")
    blocks = {"a": updates(K, 6) + 3.0, "b": updates(K, 11, 1) - 7.0}
    reports = []
    for centre in (False, True):
        options = {"normalise": normalise, "centre": centre, "quadrature": quadrature}
        link = bench("ci", snr_db=300.0, **options)
        received, report = link.deliver((Group(blocks),), cohort(weight=WEIGHTS))
        w = torch.tensor(WEIGHTS, dtype=torch.float64)
        for name, block in blocks.items():
            mean = (w[:, None] * block).sum(0) / w.sum()
            torch.testing.assert_close(received.mean[0][name][0], mean)
        reports.append(report)
    plain, centred = reports
    assert (centred.saved["m/0"] < plain.saved["m/0"]).all()
    assert torch.equal(centred.side_symbols, 2 * plain.side_symbols)
    if normalise == "block":
        rows = (K * w / w.sum())[:, None] * blocks["b"]
        torch.testing.assert_close(centred.saved["m/0"][0, 1], rows.var(1, correction=0))


def test_means_of_silent_devices_are_not_given_back() -> None:
    """Truncated inversion: the estimate is the mean over who is on air, of all of it."""
    link = bench("tci", snr_db=300.0, threshold=0.8, centre=True)
    x = updates(K, 9) + 5.0
    received, report = link.deliver((Group({"a": x}),), cohort())
    on = report.saved["active/0"][0, 0]
    assert 0 < on.sum() < K
    torch.testing.assert_close(received.mean[0]["a"][0], x[on].mean(0))


# ---------------------------------------------------------------- what bends a signal


def rows_of(report: LinkReport, x: np.ndarray, s: int = 0) -> tuple[np.ndarray, float, np.ndarray]:
    """Complex gains h p / sqrt(eta) [K], eta and K w_k x_k [K, P] of one trial, one segment."""
    saved = {name.split("/")[0]: value.numpy()[s] for name, value in report.saved.items()}
    eta = float(saved["eta"][0])
    w = np.array(WEIGHTS) / sum(WEIGHTS)
    return saved["h"][0] * saved["p"][0] / math.sqrt(eta), eta, K * w[:, None] * x[s]


@pytest.mark.parametrize("quadrature", [False, True])
def test_carrier_offset(quadrature: bool) -> None:
    """Device k's symbol i is turned by 2 pi e_k i."""
    link = impaired(bench("full", (0, 1), quadrature=quadrature), carrier_offset=0.01)
    got, x, report = deliver(link)
    offset = link.transport.setup.impairments.offsets(K, 3)[0].numpy()
    assert 0.001 < np.abs(offset).max() <= 0.01
    symbols = -(-P // 2) if quadrature else P
    for s in range(2):
        gain, eta, sent = rows_of(report, x, s)
        if quadrature:
            sent = sent[:, :symbols] + 1j * np.pad(sent[:, symbols:], ((0, 0), (0, 1)))
        turn = np.exp(2j * np.pi * offset[s][:, None] * np.arange(symbols))
        y = (gain[:, None] * turn * sent).sum(0)
        flat = y.real if not quadrature else np.concatenate([y.real, y.imag])[:P]
        expected = (flat + link.noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def delays(link: Bench, round: int = 3) -> np.ndarray:
    """[S, K] after the first device of each trial."""
    delay = link.transport.setup.impairments.offsets(K, round)[1].numpy()
    return delay - delay.min(1, keepdims=True)


def test_late_symbols_leak_into_the_next_matched_filter() -> None:
    """A device d late has (1 - d) of its symbol and d of the one before in a period."""
    link = impaired(bench("full", (0, 1)), timing_offset=0.8)
    got, x, report = deliver(link)
    for s, late in enumerate(delays(link)):
        gain, eta, sent = rows_of(report, x, s)
        before = np.pad(sent[:, :-1], ((0, 0), (1, 0)))
        y = (gain.real[:, None] * ((1 - late)[:, None] * sent + late[:, None] * before)).sum(0)
        expected = (y + link.noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def test_aligned_sample_has_no_leak_and_more_noise() -> None:
    """Noise variance 1 / (1 - latest delay) times larger."""
    link = impaired(bench("full", (0, 1)), timing_offset=0.8, timing_receiver="aligned_sample")
    got, x, report = deliver(link)
    for s, late in enumerate(delays(link)):
        gain, eta, sent = rows_of(report, x, s)
        noise = link.noise(P, 3)[s] / math.sqrt(eta * (1 - late.max()))
        expected = ((gain.real[:, None] * sent).sum(0) + noise) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def test_lmmse_is_the_estimator_of_the_whole_packet() -> None:
    """All K samples of every period, stacked for the whole packet, and the textbook estimate
    C_tr C_rr^-1 r of sum_k w_k x_k; its window of two periods to either side loses next to
    nothing. Inner symbols, as the ends are known to the textbook."""
    link = impaired(bench("full", (0, 1), snr_db=3.0), timing_offset=0.9, timing_receiver="lmmse")
    got, x, report = deliver(link)
    streams = link.streams
    for s, late in enumerate(delays(link)):
        gain, eta, sent = rows_of(report, x, s)
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
            [streams.normal(f"noise/0/0/{j}", 3, (P,))[s].numpy() for j in range(K)], 1
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


def test_lmmse_with_fewer_devices_in_one_trial() -> None:
    """A trial is estimated the same whatever it is stacked with."""
    settings = {"timing_offset": 0.9, "timing_receiver": "lmmse"}
    x = updates(9, 12)
    both = impaired(bench("full", (0, 1)), **settings)
    received, _ = both.deliver((Group({"a": x}),), cohort((3, 6), weight=WEIGHTS[:3] + WEIGHTS))
    alone = impaired(bench("full", (1,)), **settings)
    other, _ = alone.deliver((Group({"a": x[3:]}),), cohort((6,), weight=WEIGHTS))
    torch.testing.assert_close(received.mean[0]["a"][1], other.mean[0]["a"][0])


@pytest.mark.parametrize("rule", ["matched_filter", "aligned_sample", "lmmse"])
@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_what_the_receivers_of_late_symbols_are_for(rule: str, snr_db: float) -> None:
    """LMMSE has the least error at any SNR, the matched filter a floor of interference, the aligned
    sample none (Shao et al., figures 6 and 7: the trend). Mean over 6 trials of 400 symbols."""
    errors = {}
    for one in ("matched_filter", "aligned_sample", "lmmse"):
        link = impaired(
            bench("ci", tuple(range(6)), snr_db=snr_db), timing_offset=0.9, timing_receiver=one
        )
        errors[one] = deliver(link, reals=400)[2].nmse.mean().item()
    assert errors["lmmse"] <= errors[rule] * 1.001
    if snr_db == 20.0:
        assert errors["aligned_sample"] < errors["matched_filter"]


@pytest.mark.parametrize("quadrature", [False, True])
def test_clipping(quadrature: bool) -> None:
    """|p x| stays below the square root of the budget times the peak ratio; phases stay."""
    link = impaired(bench("full", (0, 1), quadrature=quadrature), clip_db=1.0)
    got, x, report = deliver(link)
    symbols = -(-P // 2) if quadrature else P
    for s in range(2):
        gain, eta, sent = rows_of(report, x, s)
        if quadrature:
            sent = sent[:, :symbols] + 1j * np.pad(sent[:, symbols:], ((0, 0), (0, 1)))
        p = np.abs(report.saved["p/0"][s, 0].numpy())[:, None]
        peak = math.sqrt(10.0 * 10**0.1)
        size = np.abs(p * sent)
        assert (size > peak).any()
        clipped = sent * np.minimum(1.0, peak / size)
        y = (gain[:, None] * clipped).sum(0)
        flat = y.real if not quadrature else np.concatenate([y.real, y.imag])[:P]
        expected = (flat + link.noise(P, 3)[s] / math.sqrt(eta)) / K
        np.testing.assert_allclose(got[s], expected, rtol=1e-5, atol=1e-6)


def test_converter() -> None:
    """Mid-rise levels of Re(y), full scale 3 root mean squares of the payload; with many bits and a
    wide range nothing changes."""
    exact, _, _ = deliver(impaired(bench("full", (0, 1)), adc_bits=16, adc_range=20.0))
    plain = deliver(bench("full", (0, 1)))[0]
    np.testing.assert_allclose(exact, plain, atol=2e-3 * np.abs(plain).max())
    got, _, report = deliver(impaired(bench("full", (0, 1)), adc_bits=3))
    for s in range(2):
        y = plain[s] * K * math.sqrt(report.saved["eta/0"][s, 0])
        top = 3 * math.sqrt((y**2).mean())
        step = top / 4
        level = np.clip(np.floor(y / step), -4, 3)
        expected = (level + 0.5) * step / K / math.sqrt(report.saved["eta/0"][s, 0])
        np.testing.assert_allclose(got[s], expected, rtol=1e-6)


def test_converter_sees_what_is_received_before_it_is_scaled() -> None:
    """Cells of different eta share one full scale, that of Re(y)."""
    link = given(bench("full", (0, 1)), 1, 5, 1, 10)
    plain, _, report = deliver(link)
    got, _, _ = deliver(impaired(link, adc_bits=4))
    cell = cells_of(10, 5, 1, P)
    for s in range(2):
        factor = K * np.sqrt(report.saved["eta/0"][s].numpy())[cell]
        y = plain[s] * factor
        step = 2 * 3 * math.sqrt((y**2).mean()) / 16
        level = np.clip(np.floor(y / step), -8, 7)
        np.testing.assert_allclose(got[s], (level + 0.5) * step / factor, rtol=1e-5)


def test_converter_error_law() -> None:
    """Uniform over a step: step^2 / 12 where nothing overloads, within 3 % at 8 bits over 20,000
    symbols (the error's square has a relative deviation of 0.9: 4.7 standard errors)."""
    link, plain = bench("ci"), bench("ci")
    got, _, report = deliver(impaired(link, adc_bits=8, adc_range=6.0), reals=20_000)
    exact, _, _ = deliver(plain, reals=20_000)
    scale = K * math.sqrt(report.saved["eta/0"][0, 0])
    step = 12 * math.sqrt((exact**2).mean()) / 256 * scale
    assert ((got - exact) ** 2).mean() * scale**2 == pytest.approx(step**2 / 12, rel=0.03)


def test_interference_is_noise_of_a_fading_power() -> None:
    """Three interferers at 10 dB: N (1 + 10 sum |g_j|^2) in a round, N (1 + 30) as the policy
    expects. The ratio of the error to the saved variance is chi-square over 20,000 symbols, level
    1e-4; over 400 rounds the variance's mean is 31 N within 5 standard errors."""
    link = impaired(bench("ci", fading=False), interference_db=10.0)
    x = updates(K, 20_000)
    received, report = link.deliver((Group({"a": x}),), cohort(), 1)
    error = (received.mean[0]["a"] - x.mean(0)).square().sum() * K**2
    ratio = (error * report.saved["eta/0"][0, 0] / report.saved["noise/0"][0, 0]).item()
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], 20_000)
    assert low < ratio < high
    impairments = link.transport.setup.impairments
    assert impairments.known_noise.tolist() == [15.5]
    f = torch.ones(1, 1, 1, dtype=torch.complex128)
    drawn = torch.stack([impairments.noise(f, t)[0, 0] for t in range(400)]) / 0.5
    assert abs(drawn.mean().item() - 31.0) < 5 * 10 * math.sqrt(3) / 20


def test_jammer_is_not_expected() -> None:
    size = 1
    link = bench("ci", fading=False)
    made = Impairments.of(
        [ImpairmentsConfig()] * size, torch.tensor([100.0]).double(), link.streams
    )
    f = torch.ones(1, 1, 1, dtype=torch.complex128)
    assert made.known_noise.tolist() == [0.5]
    drawn = torch.stack([made.noise(f, t)[0, 0] for t in range(400)]) / 0.5
    assert abs(drawn.mean().item() - 101.0) < 5 * 100 / 20


# ---------------------------------------------------------------- receivers


def channels(trials: int = 40, devices: int = 8, antennas: int = 4, seed: int = 0) -> torch.Tensor:
    """[S, 1, K, A] complex normal."""
    z = np.random.default_rng(seed).standard_normal((2, trials, 1, devices, antennas))
    return torch.from_numpy((z[0] + 1j * z[1]) / math.sqrt(2))


def weakest(h: torch.Tensor, f: torch.Tensor, budget: torch.Tensor) -> torch.Tensor:
    """min_k P_k |f^H h_k|^2 [S]."""
    arrives = (f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget
    return arrives.amin(1)


@pytest.mark.parametrize(
    "receiver",
    [
        Mrc(MrcConfig()),
        Eigen(EigenConfig()),
        UniformForcing(UniformForcingConfig()),
    ],
    ids=["mrc", "eigen", "uniform_forcing"],
)
def test_combiners_have_unit_norm_and_ignore_the_silent(receiver: Any) -> None:
    h, budget = channels(), torch.ones(40, 8, dtype=torch.float64)
    sends = torch.ones(40, 8, dtype=torch.bool)
    sends[:, 2] = False
    sends[7] = False  # nobody
    f = receiver.combine(h, sends, budget)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))
    other = h.clone()
    other[:, :, 2] *= 100
    torch.testing.assert_close(receiver.combine(other, sends, budget)[:7], f[:7])
    one = receiver.combine(h[..., :1], sends, budget)
    torch.testing.assert_close(one.abs(), torch.ones_like(one.real))


def test_mrc_sums_the_channels() -> None:
    h = channels()
    f = Mrc(MrcConfig()).combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    total = h.sum(2)
    torch.testing.assert_close(f, total / total.norm(dim=-1, keepdim=True))


def test_eigen_receives_the_most_power() -> None:
    h, budget = channels(), torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    f = Eigen(EigenConfig()).combine(h, torch.ones(40, 8).bool(), budget)
    best = ((f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget).sum(1)
    a = h[:, 0] * budget.sqrt()[..., None]
    law = torch.linalg.matrix_norm(a, ord=2).square()
    torch.testing.assert_close(best, law)


def test_uniform_forcing_beats_random_combiners_and_the_eigenvector() -> None:
    """The best of 1,000 random combiners in every one of 40 states, 8 devices, 4 antennas, unequal
    budgets."""
    h, budget = channels(), torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    sends = torch.ones(40, 8, dtype=torch.bool)
    ours = weakest(h, UniformForcing(UniformForcingConfig()).combine(h, sends, budget), budget)
    z = channels(1000, 1, 4, seed=1)[:, 0, 0]
    random = (z / z.norm(dim=-1, keepdim=True)).conj() @ h[:, 0].mT  # [S, 1000, K]
    best = (random.abs().square() * budget[:, None]).amin(-1).amax(1)
    assert (ours > best).all()
    start = weakest(h, Eigen(EigenConfig()).combine(h, sends, budget), budget)
    assert (ours >= start).all()
    assert ours.mean() > 2 * start.mean()


def test_uniform_forcing_of_two_devices_by_hand() -> None:
    """Orthogonal channels of equal norm: both get half of it."""
    h = torch.eye(2, dtype=torch.complex128)[None, None]
    f = UniformForcing(UniformForcingConfig()).combine(h, torch.ones(1, 2).bool(), torch.ones(1, 2))
    assert weakest(h, f, torch.ones(1, 2)).item() == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("policy", ["ci", "gbma", "tci"])
def test_mmse_scale_never_has_a_larger_error(policy: str) -> None:
    """sum m (c - 1)^2 + N / eta at the policy's p: no other eta is better, at 0 dB."""
    link = bench(policy, tuple(range(8)), snr_db=0.0)
    scaled = Eigen(EigenConfig(scale="mmse"))
    plain, best = (
        deliver(one, "none")[2].saved for one in (link, with_setup(link, receiver=scaled))
    )
    torch.testing.assert_close(best["p/0"].abs(), plain["p/0"].abs())

    def law(saved: dict[str, torch.Tensor], factor: float = 1.0) -> torch.Tensor:
        c = saved["c/0"] / math.sqrt(factor)
        on = saved["active/0"]
        error = (saved["m/0"] * (c - 1).square() * on).sum(-1)
        return error + 0.5 / (saved["eta/0"] * factor)

    assert (law(best) <= law(plain) + 1e-12).all()
    for factor in (0.98, 1.02):
        assert (law(best) < law(best, factor)).all()
