"""The digital uplink: rates, airtime, energy and outage by hand, and real bits through LDPC.

Mutations that make a test here fail: OFDMA at the SNR of the whole band, its slot as long as the
sum of turns, or in channel uses of a device's own band, its energy for its share of the band; one
antenna for all, amplitudes for powers in combining, the rate of the mean SNR, the first cell for
all; the last supported scheme for the fastest, the true channel known to the chooser, the estimate
in place of it in the outage rule, the margin in the outage rule too, the gap forgotten in it,
combining by the truth; a lost device in the mean, the count of what is lost, lost devices
uncharged, silent ones charged, the rows of lost devices among each; the bound for each device for
one shared, one shared by the population for the senders, bits a real rounded up, rounded to
nearest; noise of twice the power, words read from the wrong end, errors kept where the block is
dropped, scrambling undone at one end only, the SNR of the whole band in OFDMA's noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from otafl.codecs.config import IdentityConfig, QsgdConfig, UniformConfig
from otafl.codecs.identity import Identity
from otafl.codecs.qsgd import Qsgd
from otafl.codecs.uniform import Uniform
from otafl.core.contracts import ChannelState, Cohort, Group, LinkBudget, LinkReport, Received
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.core.settings import stackable_fields
from otafl.transport.coded_bits import layout
from otafl.transport.config import DigitalConfig, ImpairmentsConfig
from otafl.transport.digital import Digital
from otafl.transport.fitted_bits import rounded
from otafl.transport.impairments import Impairments
from otafl.transport.mcs import MCS_TABLES
from otafl.transport.setup import LinkSetup

BANDWIDTH, WATT = 2e6, 1e-3
"""Hertz, and watts of unit power."""


class Estimate:
    """An estimate of h made up by the test; None: h itself."""

    pilot_symbols: ClassVar[int] = 0
    variance = None

    def __init__(self, h_hat: Tensor | None) -> None:
        self._h_hat = h_hat

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h if self._h_hat is None else self._h_hat


class Bench:
    """S trials over K devices with amplitudes h [S, K] (or any [S, K, A, B, F]), budgets 1."""

    def __init__(
        self,
        h: Any,
        h_hat: Any = None,
        codec: Any = None,
        budget: Any = None,
        impairments: ImpairmentsConfig | None = None,
        seed: int = 0,
        per_trial: dict[str, Sequence[float]] | None = None,
        **options: Any,
    ) -> None:
        self.h, size = _cells(h), len(_cells(h))
        config = DigitalConfig(**options)
        self.streams = Streams([seed] * size, range(size), dtype=torch.float64)
        ones = torch.ones(self.h.shape[:2]).double()
        one = ones[:, 0]
        hyper = {name: one * getattr(config, name) for name in stackable_fields(DigitalConfig)} | {
            name: torch.tensor(value).double() for name, value in (per_trial or {}).items()
        }
        power = ones if budget is None else torch.as_tensor(budget).double().expand_as(ones)
        self.gain = ones
        self.link = Digital(
            config,
            LinkSetup(
                budget=LinkBudget(power, ones, one * WATT, one * BANDWIDTH, one > 0),
                csi=Estimate(None if h_hat is None else _cells(h_hat)),
                receiver=None,
                policy=None,
                statistics=None,
                policy_hyper={},
                impairments=Impairments.of(
                    [impairments or ImpairmentsConfig()] * size, None, self.streams
                ),
                codec=Identity(IdentityConfig(), {}, self.streams) if codec is None else codec,
                streams=self.streams,
                hyper=hyper,
            ),
        )

    def deliver(
        self, *payload: Group, who: Cohort | None = None, round: int = 0
    ) -> tuple[Received, LinkReport]:
        if who is None:
            who = cohort((self.h.shape[1],) * len(self.h), self.h.shape[1])
        return self.link.deliver(payload, who, ChannelState(self.h, self.gain), round)


def _cells(h: Any) -> Tensor:
    h = torch.as_tensor(np.asarray(h)).to(torch.complex128)
    return h if h.dim() == 5 else h[:, :, None, None, None]


def cohort(counts: Sequence[int], population: int, weight: Sequence[float] | None = None) -> Cohort:
    trial = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    device = torch.cat([torch.arange(count) for count in counts])
    w = torch.ones(len(trial)) if weight is None else torch.tensor(weight)
    return Cohort.fresh(trial, device, w.double(), tuple(counts), population)


def rows(count: int, reals: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((count, reals)))


def amplitude(snr: Any) -> np.ndarray:
    return np.sqrt(np.asarray(snr, dtype=float))


def uniform(bits: int) -> Uniform:
    return Uniform(UniformConfig(bits=bits), {}, Streams([0], [0], dtype=torch.float64))


def test_turns_by_hand() -> None:
    """SNR 1, 3 and 15: 320 bits take 320, 160 and 80 channel uses, in turn or each in a third of
    the band. There the SNR is 3, 9 and 45, and the slowest needs 320 / log2(4) = 160 of its own,
    480 of the whole band."""
    x = Group({"a": rows(3, 10)})
    _, tdma = Bench([amplitude([1, 3, 15])]).deliver(x)
    assert tdma.symbols.item() == pytest.approx(560)
    assert tdma.airtime_s.item() == pytest.approx(560 / BANDWIDTH)
    joules = WATT / BANDWIDTH
    np.testing.assert_allclose(tdma.energy_j[0], np.array([320, 160, 80]) * joules)
    _, ofdma = Bench([amplitude([1, 3, 15])], access="ofdma").deliver(x)
    own = 320 / np.log2(1 + 3 * np.array([1, 3, 15]))
    assert ofdma.symbols.item() == pytest.approx(480)
    np.testing.assert_allclose(ofdma.energy_j[0], 3 * own * joules)
    for report in (tdma, ofdma):
        assert report.bits.item() == 960
        assert report.participants.item() == 3
        np.testing.assert_allclose(report.power[0], 1.0)
        assert report.nmse.item() == 0


def test_ofdma_shares_the_band_among_those_that_send() -> None:
    """Two trials of four and of two devices: 4 and 2 times the SNR of 1; several groups are one
    stream of bits of each device, 320 and device 0 another 640."""
    link = Bench(np.ones((2, 4)), access="ofdma")
    who = cohort((4, 2), 4)
    both = Group({"a": rows(6, 10)}), Group({"b": rows(2, 20)}, rows=torch.tensor([0, 4]))
    received, report = link.deliver(*both, who=who)
    hand = [4 * 960 / math.log2(5), 2 * 960 / math.log2(3)]
    np.testing.assert_allclose(report.symbols, hand)
    np.testing.assert_allclose(report.bits, [4 * 320 + 640, 2 * 320 + 640])
    torch.testing.assert_close(received.mean[0]["a"][1], both[0].blocks["a"][4:].mean(0))
    torch.testing.assert_close(received.mean[1]["b"], both[1].blocks["b"])


def test_rate_is_the_mean_over_cells_after_combining() -> None:
    """Two antennas, two blocks, two sub-carrier groups: SNR of a cell is the sum over antennas."""
    rng = np.random.default_rng(1)
    h = rng.standard_normal((1, 2, 2, 2, 2)) + 1j * rng.standard_normal((1, 2, 2, 2, 2))
    budget, factor, gap_db = np.array([[2.0, 0.5]]), 0.8, 3.0
    link = Bench(h, budget=budget, rate_factor=factor, snr_gap_db=gap_db)
    _, report = link.deliver(Group({"a": rows(2, 10)}))
    snr = budget[0, :, None, None] * (np.abs(h[0]) ** 2).sum(1) / 10**0.3
    hand = 320 / (factor * np.log2(1 + snr).mean((1, 2)))
    np.testing.assert_allclose(report.energy_j[0], hand * budget[0] * WATT / BANDWIDTH)


def test_a_longer_payload_sees_more_blocks() -> None:
    """Blocks of 4 channel uses: 10 reals see three of them."""
    blocks = amplitude([1, 3, 7])[None, None, None, :, None]
    link = Bench(blocks[:, :, :, :1])
    asked = []

    def later(count: int) -> Tensor:
        asked.append(count)
        return _cells(blocks)

    state = ChannelState(link.h, link.gain, block_symbols=4, later=later)
    _, report = link.link.deliver((Group({"a": rows(1, 10)}),), cohort((1,), 1), state, 0)
    assert asked == [3]
    assert report.symbols.item() == pytest.approx(320 / 2)


def test_schemes_are_those_of_the_standard() -> None:
    """Spectral efficiencies as TS 38.214 prints them, some of each table, and Sionna's numbers."""
    printed = {
        "64qam": {0: 0.2344, 9: 1.3262, 10: 1.3281, 16: 2.5703, 17: 2.5664, 28: 5.5547},
        "256qam": {0: 0.2344, 4: 1.1758, 10: 2.5703, 11: 2.7305, 20: 5.3320, 27: 7.4063},
    }
    assert {name: len(table) for name, table in MCS_TABLES.items()} == {"64qam": 29, "256qam": 28}
    with torch.random.fork_rng():
        from sionna.phy.nr.utils import decode_mcs_index
    for number, (name, table) in enumerate(MCS_TABLES.items(), 1):
        for index, value in printed[name].items():
            assert table[index].efficiency == pytest.approx(value, abs=5e-5)
        for index, mcs in enumerate(table):
            order, rate = decode_mcs_index(index, number, is_pusch=False)
            assert (mcs.order, mcs.rate_1024) == (int(order), pytest.approx(1024 * float(rate)))


@pytest.mark.parametrize("table", ["64qam", "256qam"])
def test_the_fastest_supported_scheme(table: Any) -> None:
    """Over SNRs from -10 to 40 dB, against a search through the table; below the slowest, silence.
    At 2.568 bits a channel use the 64-QAM table has scheme 17 (2.566) and not 16 (2.570)."""
    snr = 10 ** (np.arange(-10, 40, 0.5) / 10)
    snr = np.append(snr, 2**2.568 - 1)
    link = Bench([amplitude(snr)], rate="mcs", mcs_table=table, rate_factor=0.9, snr_gap_db=1.0)
    _, report = link.deliver(Group({"a": rows(len(snr), 10)}))
    carried = 0.9 * np.log2(1 + snr / 10**0.1)
    rates = [[m.efficiency for m in MCS_TABLES[table] if m.efficiency <= c] for c in carried]
    hand = np.array([320 / max(own) if own else 0 for own in rates])
    np.testing.assert_allclose(report.energy_j[0] * BANDWIDTH / WATT, hand, rtol=1e-9)
    silent = int((hand == 0).sum())
    assert 0 < silent < 20
    assert report.participants.item() == len(snr) - silent
    assert report.bits.item() == 320 * (len(snr) - silent)


def test_slower_order_wins_where_it_carries_more() -> None:
    """2.5703 bits of scheme 16 are more than the 2.5664 of scheme 17."""
    link = Bench([amplitude([2**2.5704 - 1])], rate="mcs")
    _, report = link.deliver(Group({"a": rows(1, 10)}))
    assert report.symbols.item() == pytest.approx(320 / (4 * 658 / 1024))


def test_outage_by_hand() -> None:
    """Scheme 10 has 1.328 bits a channel use: devices at SNR 1 (one bit) are lost, those at SNR 3
    arrive. Weights 1, 2, 3 and 4: the mean is over devices 1 and 3, and 60 % of the weight came."""
    snr, weight = [1, 3, 1, 3], [1.0, 2, 3, 4]
    link = Bench([amplitude(snr)], rate="mcs", mcs_index=10)
    x = rows(4, 10)
    who = cohort((4,), 4, weight)
    received, report = link.deliver(Group({"a": x}), who=who)
    hand = (2 * x[1] + 4 * x[3]) / 6
    torch.testing.assert_close(received.mean[0]["a"][0], hand)
    assert received.count[0].tolist() == [pytest.approx(0.6)]
    assert received.each is not None
    assert received.came is not None
    assert received.came[0] is not None
    assert received.came[0].tolist() == [False, True, False, True]
    assert torch.equal(received.each[0]["a"], x * torch.tensor([0.0, 1, 0, 1])[:, None].double())
    assert received.alive is None
    symbols = 320 / (4 * 340 / 1024)
    np.testing.assert_allclose(report.energy_j[0], symbols * WATT / BANDWIDTH)
    assert report.symbols.item() == pytest.approx(4 * symbols)
    assert report.bits.item() == 1280
    assert report.participants.item() == 2
    exact = (torch.tensor(weight).double()[:, None] * x).sum(0) / 10
    nmse = (hand - exact).square().sum() / exact.square().sum()
    torch.testing.assert_close(report.nmse[0], nmse)
    # the same channel, without outage: the lost ones go on until one bit a channel use got through
    received, report = Bench([amplitude(snr)], rate="mcs", mcs_index=10, outage=False).deliver(
        Group({"a": x}), who=who
    )
    torch.testing.assert_close(received.mean[0]["a"][0], exact)
    hand = np.array([320, symbols, 320, symbols]) * WATT / BANDWIDTH
    np.testing.assert_allclose(report.energy_j[0], hand)
    assert report.nmse.item() == 0


def test_outage_of_sums_and_of_masked_means() -> None:
    """Device 0 is lost. A sum is over what came, its count the weight that came; a coordinate that
    only device 0 knows is nobody's."""
    link = Bench([amplitude([1, 3, 3])], rate="mcs", mcs_index=10)
    x, weight = rows(3, 3), [0.2, 0.3, 0.5]
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0], [0, 1, 0]])
    who = cohort((3,), 3, weight)
    groups = Group({"a": x}, weighting="none"), Group({"a": x}, mask={"a": mask})
    received, _ = link.deliver(*groups, who=who)
    torch.testing.assert_close(received.mean[0]["a"][0], x[1] + x[2])
    assert received.count[0].tolist() == [pytest.approx(0.8)]
    hand = torch.stack([x[1, 0], (0.3 * x[1, 1] + 0.5 * x[2, 1]) / 0.8, torch.zeros(()).double()])
    torch.testing.assert_close(received.mean[1]["a"][0], hand)
    count = received.count[1]
    assert isinstance(count, dict)
    torch.testing.assert_close(count["a"][0], torch.tensor([0.3, 0.8, 0.0]).double())


def test_nobody_arrives() -> None:
    """In trial 1 all are lost: not alive, zero and finite."""
    link = Bench(amplitude([[3, 3], [1, 1]]), rate="mcs", mcs_index=10)
    received, report = link.deliver(Group({"a": rows(4, 5)}))
    assert received.alive is not None
    assert received.alive.tolist() == [True, False]
    assert received.mean[0]["a"][1].eq(0).all()
    assert report.participants.tolist() == [2, 0]
    assert report.energy_j[1].gt(0).all()
    assert report.nmse[1].item() == pytest.approx(1)


@pytest.mark.parametrize("margin_db", [0.0, 6.0])
def test_rates_by_the_estimate_and_outage_by_the_truth(margin_db: float) -> None:
    """Three devices at SNR 3 that believe in 1, 3 and 5: they send 1, 2 and 2.58 bits a channel use
    and the last is lost; at four times less (6 dB) all arrive. A gap of 3 dB is in both rates."""
    link = Bench(
        [amplitude(np.array([3, 3, 3]) * 10**0.3)],
        [amplitude(np.array([1, 3, 5]) * 10**0.3)],
        margin_db=margin_db,
        snr_gap_db=3.0,
    )
    x = rows(3, 10)
    received, report = link.deliver(Group({"a": x}))
    believed = np.array([1, 3, 5]) / 10 ** (margin_db / 10)
    hand = 320 / np.log2(1 + believed) * WATT / BANDWIDTH
    np.testing.assert_allclose(report.energy_j[0], hand)
    arrived = 2 if margin_db == 0 else 3
    torch.testing.assert_close(received.mean[0]["a"][0], x[:arrived].mean(0))
    assert report.participants.item() == arrived


def test_combining_by_the_estimate_loses_power() -> None:
    """Two antennas (1, 0), believed to be (1, 1): of 2 that it believes in 1/2 arrives, so a margin
    of 4 does and one of 2.5 does not. Without outage the channel is combined by the truth."""
    h, h_hat = np.zeros((1, 1, 2, 1, 1)), np.ones((1, 1, 2, 1, 1))
    h[0, 0, 0] = 1
    received, report = Bench(h, h_hat).deliver(Group({"a": rows(1, 4)}))
    assert report.symbols.item() == pytest.approx(128 / math.log2(3))
    assert received.alive is not None
    assert not received.alive.item()
    for margin, arrives in ((2.5, 0), (4.0 + 1e-9, 1)):
        link = Bench(h, h_hat, margin_db=10 * math.log10(margin))
        _, report = link.deliver(Group({"a": rows(1, 4)}))
        assert report.participants.item() == arrives
    _, report = Bench(h, h_hat, outage=False).deliver(Group({"a": rows(1, 4)}))
    assert report.symbols.item() == pytest.approx(128)


def test_interference_is_noise_that_the_server_knows_in_the_mean() -> None:
    """One interferer of power 1: the rate is that of SNR 3 / 2, and the update is lost where its
    exponential gain is above 1, as the interferer's draw says."""
    interference = ImpairmentsConfig(interference_db=0.0, interferers=1)
    link = Bench(amplitude(np.full((200, 1), 3.0)), impairments=interference, seed=5)
    _, report = link.deliver(Group({"a": rows(200, 4)}))
    np.testing.assert_allclose(report.symbols, 128 / math.log2(2.5))
    draw = link.streams.normal("interference", 0, (2, 1, 2)).numpy()[:, 0, 0]
    arrived = (draw**2).sum(1) / 2 <= 1
    assert report.participants.tolist() == arrived.tolist()
    assert 90 < arrived.sum() < 160  # 1 - 1/e of 200 are 126


def test_perfect_csi_never_fails() -> None:
    """Also where the estimate is not the same tensor, and combining rounds differently."""
    rng = np.random.default_rng(0)
    h = rng.standard_normal((4, 50, 3, 1, 2)) + 1j * rng.standard_normal((4, 50, 3, 1, 2))
    _, report = Bench(h, h.copy()).deliver(Group({"a": rows(200, 4)}))
    assert report.participants.tolist() == [50] * 4
    assert report.nmse.tolist() == [0] * 4


def test_a_bound_on_the_slot_by_hand() -> None:
    """At SNR 1, 3 and 15 an update takes 320, 160 and 80 channel uses. Of 480 each device has 160:
    the first is silent and costs nothing. 479 leave the last alone; trial 2 has no bound."""
    link = Bench(
        amplitude([[1, 3, 15]] * 3), max_symbols=1.0, per_trial={"max_symbols": [480, 479, 0]}
    )
    x = rows(9, 10)
    received, report = link.deliver(Group({"a": x}))
    assert report.participants.tolist() == [2, 1, 3]
    np.testing.assert_allclose(report.symbols, [240, 80, 560])
    np.testing.assert_allclose(report.bits, [640, 320, 960])
    assert report.energy_j[0, 0] == report.energy_j[1, 1] == 0
    torch.testing.assert_close(received.mean[0]["a"][0], x[1:3].mean(0))
    torch.testing.assert_close(received.mean[0]["a"][1], x[5])
    # each of two that send has 239.5 of 479, the third device has no share
    _, report = link.deliver(Group({"a": x[:2]}), who=cohort((0, 2, 0), 3))
    assert report.participants.tolist() == [0, 1, 0]
    assert report.symbols[1].item() == pytest.approx(160)
    # the same in sub-bands: SNR 3, 9 and 45, and 160, 96.3 and 57.9 own channel uses
    _, report = Bench([amplitude([1, 3, 15])], access="ofdma", max_symbols=300.0).deliver(
        Group({"a": rows(3, 10)})
    )
    assert report.participants.item() == 2
    assert report.symbols.item() == pytest.approx(3 * 320 / math.log2(10))


def test_fitted_bits_by_hand() -> None:
    """Of 600 channel uses each of three devices has 200, at 1, 2 and 4 bits: 200, 400 and 800, less
    64 for the range over 50 reals: 2, 6 and 14 bits a real. What they cost is what they send."""
    link = Bench([amplitude([1, 3, 15])], max_symbols=600.0, over_budget="quantise")
    x = rows(3, 50)
    received, report = link.deliver(Group({"a": x}))
    depth = np.array([2, 6, 14])
    bits = 64 + 50 * depth
    assert report.bits.item() == bits.sum()
    np.testing.assert_allclose(report.energy_j[0], bits / [1, 2, 4] * WATT / BANDWIDTH)
    assert received.each is not None
    got = received.each[0]["a"]
    span = (x.amax(1) - x.amin(1)).numpy()
    for k in range(3):
        assert len(got[k].unique()) <= 2 ** depth[k]
        worst = (got[k] - x[k]).abs().max().item()
        assert 0.4 < worst / (span[k] / (2 ** depth[k] - 1)) <= 1 + 1e-9
    torch.testing.assert_close(received.mean[0]["a"][0], got.mean(0))
    exact = x.mean(0)
    nmse = (got.mean(0) - exact).square().sum() / exact.square().sum()
    torch.testing.assert_close(report.nmse[0], nmse)
    # no bit a real: silent
    _, report = Bench([amplitude([1, 3, 15])], max_symbols=300.0, over_budget="quantise").deliver(
        Group({"a": x})
    )
    assert report.participants.item() == 2
    assert report.energy_j[0, 0] == 0


def test_stochastic_rounding_against_a_loop() -> None:
    block, depth = rows(4, 12).view(4, 3, 4), torch.tensor([1.0, 2, 5, 16])
    draw = torch.rand(4, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = rounded(block, depth, draw)
    for k in range(4):
        x, u = block[k].flatten().numpy(), draw[k].flatten().numpy()
        levels, low, high = 2 ** int(depth[k]) - 1, x.min(), x.max()
        for value, one, out in zip(x, u, got[k].flatten().tolist(), strict=True):
            place = (value - low) / (high - low) * levels
            level = int(place) + (one >= 1 - (place - int(place)))
            assert out == pytest.approx(low + min(level, levels) * (high - low) / levels)
    constant = torch.full((1, 5), 0.3)
    assert torch.equal(rounded(constant, torch.tensor([3.0]), torch.rand(1, 5)), constant)


def test_digital_with_fitted_bits_is_lee_barnes_ozgur() -> None:
    """k = s / (2 n) log2(1 + n P / sigma_n^2) bits of n devices in s real channel uses, that are
    s / 2 complex ones of noise 2 sigma_n^2 and twice the power."""
    s, n, snr, reals = 8000, 5, 4.0, 300
    link = Bench([amplitude([snr] * n)], access="ofdma", max_symbols=s / 2, over_budget="quantise")
    _, report = link.deliver(Group({"a": rows(n, reals)}))
    k = s / (2 * n) * math.log2(1 + n * snr)
    whole = math.floor((k - 64) / reals)
    assert report.bits.item() == n * (whole * reals + 64)
    assert report.symbols.item() <= s / 2


LDPC: dict[str, Any] = {"rate": "mcs", "coding": "ldpc"}


def test_layout_by_hand() -> None:
    """1,000 bits at 340/1024 on 16-QAM: 3,011.8 coded bits, 3,012 in symbols of 4. At 120/1024 the
    code's 5,000 bits are repeated to 8,536. 10,000 bits are three codewords of 3,334."""
    table = MCS_TABLES["64qam"]
    one = layout(1000, table[10])
    assert (one.blocks, one.k, one.n, one.mother, one.symbols) == (1, 1000, 3012, 3012, 753)
    slow = layout(1000, table[0])
    assert (slow.n, slow.mother, slow.symbols) == (8534, 5000, 4267)
    long = layout(10_000, table[28])
    assert (long.blocks, long.k, long.n) == (3, 3334, 3606)
    assert layout(3, table[9]).k == 12


def bits_back(x: Tensor, received: Tensor, codec: Any) -> Tensor:
    """[n] share of words that arrived as they were sent."""
    same = [codec.words(Group({"a": part})) for part in (x, received)]
    return (same[0] == same[1]).double().mean(1)


@pytest.mark.parametrize("name", ["uniform", "qsgd"])
def test_real_bits_arrive_where_the_channel_is_good(name: str) -> None:
    """Each device at the fastest scheme with a gap of 3 dB arrives: SNRs from -3 to 24 dB, 300 bits
    (repetition at the lowest); costs by the layout of each."""
    streams = Streams([0], [0], dtype=torch.float64)
    codec: Any = uniform(4)
    if name == "qsgd":
        codec = Qsgd(QsgdConfig(bits=4, norm="max"), {}, streams)
    snr_db = np.array([-3.0, 2.0, 9.0, 16.0, 24.0])
    (sent,), _ = codec.encode((Group({"a": rows(5, 59)}),), {}, cohort((5,), 5), 0, streams)
    link = Bench([amplitude(10 ** (snr_db / 10))], codec=codec, snr_gap_db=3.0, **LDPC)
    received, report = link.deliver(sent)
    assert report.participants.item() == 5
    assert report.nmse.item() == pytest.approx(0, abs=1e-20)
    torch.testing.assert_close(received.mean[0]["a"][0], sent.blocks["a"].mean(0))
    bits = int(codec.bits(sent))
    table = MCS_TABLES["64qam"]
    carried = np.log2(1 + 10 ** ((snr_db - 3) / 10))
    own = [
        max((m for m in table if m.efficiency <= c), key=lambda m: m.efficiency) for c in carried
    ]
    symbols = np.array([layout(bits, m).symbols for m in own])
    np.testing.assert_allclose(report.energy_j[0] * BANDWIDTH / WATT, symbols)
    assert own[0].rate_1024 < 1024 / 5


def test_real_bits_are_wrong_where_it_is_bad() -> None:
    """One device far below its scheme, one far above it: the update is lost, or kept with most of
    its words wrong."""
    codec, x = uniform(6), rows(2, 100)
    streams = Streams([0], [0], dtype=torch.float64)
    (sent,), _ = codec.encode((Group({"a": x}),), {}, cohort((2,), 2), 0, streams)
    options = {"codec": codec, "mcs_index": 10, **LDPC}
    h = [amplitude([1.2, 30])]
    received, report = Bench(h, **options).deliver(sent)
    assert report.participants.item() == 1
    assert torch.equal(received.mean[0]["a"][0], sent.blocks["a"][1])
    assert report.energy_j[0, 0] == report.energy_j[0, 1] > 0
    received, report = Bench(h, on_block_error="keep", **options).deliver(sent)
    assert report.participants.item() == 2
    assert received.each is not None
    good = bits_back(sent.blocks["a"], received.each[0]["a"], codec)
    assert good[1] == 1
    assert 0.01 < good[0] < 0.9
    ends = received.each[0]["a"][0]
    assert ends.amin() >= sent.blocks["a"][0].amin() - 1e-9
    torch.testing.assert_close(
        received.mean[0]["a"][0], received.each[0]["a"].mean(0), rtol=1e-9, atol=1e-9
    )


def sionna_alone(bits: int, index: int, snr: float, blocks: int) -> int:
    """Wrong blocks of so many, by Sionna's blocks and noise alone."""
    with torch.random.fork_rng():
        from sionna.phy.channel import AWGN
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
        from sionna.phy.mapping import BinarySource, Demapper, Mapper

        order, rate = MCS_TABLES["64qam"][index]
        coded = math.ceil(bits * 1024 / rate / order) * order
        encode = LDPC5GEncoder(bits, coded, num_bits_per_symbol=order, device="cpu")
        mapper = Mapper("qam", order, device="cpu")
        demapper = Demapper("app", "qam", order, device="cpu")
        sent = BinarySource(device="cpu", seed=1)((blocks, bits))
        no = torch.tensor(1 / snr)
        heard = AWGN(device="cpu")(mapper(encode(sent)), no)
        got = LDPC5GDecoder(encode, device="cpu")(demapper(heard, no))
        return int((got != sent).any(1).sum())


@pytest.mark.parametrize(("access", "index", "snr_db"), [("tdma", 5, -0.7), ("ofdma", 12, 5.3)])
def test_block_errors_are_those_of_sionna_alone(access: Any, index: int, snr_db: float) -> None:
    """300 devices' blocks of 96 bits, in OFDMA with 25 dB more in each share of the band, beside
    600 blocks of Sionna's own: QPSK at 0.37 and 16-QAM at 0.42. The difference of two binomial
    shares, level 1e-4."""
    codec, snr = uniform(1), 10 ** (snr_db / 10)
    streams = Streams([0], [0], dtype=torch.float64)
    (sent,), _ = codec.encode((Group({"a": rows(300, 32)}),), {}, cohort((300,), 300), 0, streams)
    h = [amplitude([snr if access == "tdma" else snr / 300] * 300)]
    _, report = Bench(h, codec=codec, access=access, mcs_index=index, **LDPC).deliver(sent)
    wrong, twin = 300 - int(report.participants.item()), sionna_alone(96, index, snr, 600)
    share = (wrong + twin) / 900
    assert 0.1 < share < 0.9
    spread = math.sqrt(share * (1 - share) * (1 / 300 + 1 / 600))
    assert abs(wrong / 300 - twin / 600) < stats.norm.isf(5e-5) * spread


def test_real_bits_are_the_same_stacked_or_alone() -> None:
    codec = uniform(3)
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    who = cohort((3, 2), 3)
    (sent,), _ = codec.encode((Group({"a": rows(5, 40)}),), {}, who, 0, streams)
    h = amplitude([[1.2, 0.9, 3.0], [1.3, 1.5, 9.0]])
    options = {"codec": codec, "mcs_index": 10, "on_block_error": "keep", **LDPC}
    both, _ = Bench(h, **options).deliver(sent, who=who)
    alone, _ = Bench(h[:1], **options).deliver(Group({"a": sent.blocks["a"][:3]}))
    assert both.each is not None
    assert alone.each is not None
    assert torch.equal(both.each[0]["a"][:3], alone.each[0]["a"])
    again, _ = Bench(h, **options).deliver(sent, who=who)
    assert again.each is not None
    assert torch.equal(both.each[0]["a"], again.each[0]["a"])
    other, _ = Bench(h, **options).deliver(sent, who=who, round=1)
    assert other.each is not None
    assert not torch.equal(both.each[0]["a"], other.each[0]["a"])


def test_what_it_refuses() -> None:
    for options, message in (
        ({"mcs_index": 3}, "needs rate: mcs"),
        ({"rate": "mcs", "mcs_index": 29}, "ends at 28"),
        ({"rate": "mcs", "mcs_table": "256qam", "mcs_index": 28}, "ends at 27"),
        ({"coding": "ldpc"}, "set rate: mcs"),
        ({"on_block_error": "keep"}, "needs coding: ldpc"),
        ({"coding": "ldpc", "rate": "mcs", "outage": False}, "needs coding: ideal"),
        ({"over_budget": "quantise"}, "needs max_symbols"),
        ({**LDPC, "over_budget": "quantise", "max_symbols": 5.0}, "needs coding: ideal"),
    ):
        with pytest.raises(ValidationError, match=message):
            DigitalConfig(**options)
    streams = Streams([0], [0])
    for codec in (None, Qsgd(QsgdConfig(), {}, streams)):
        with pytest.raises(UserError, match="the codec makes none"):
            Bench([[1.0]], codec=codec, **LDPC)
    twice = Group({"a": rows(2, 8)}, rows=torch.tensor([0, 0]))
    for options in ({"codec": uniform(2), **LDPC}, {"max_symbols": 9.0, "over_budget": "quantise"}):
        with pytest.raises(UserError, match="several rows of a device"):
            Bench([[1.0]], **options).deliver(twice, who=cohort((1,), 1))
