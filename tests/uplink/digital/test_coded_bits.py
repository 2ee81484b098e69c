"""Real bits through LDPC codes, QAM and noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from support.digital_bench import (
    BANDWIDTH,
    WATT,
    Bench,
    compute_amplitude,
    draw_rows,
    make_uniform,
)
from support.link_bench import make_cohort
from support.rounding import assert_agree

from otafl.codecs.quantisers import Qsgd
from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.uplink.digital.coded_bits import layout
from otafl.uplink.digital.digital import Digital
from otafl.uplink.digital.packets import MCS_TABLE

pytestmark = pytest.mark.exact


LDPC: dict[str, Any] = {"rate": "mcs", "coding": "ldpc"}


def test_layout_by_hand() -> None:
    """1,000 bits at 340/1024 on 16-QAM: 3,011.8 coded bits, 3,012 in symbols of 4. At 120/1024 the
    code's 5,000 bits are repeated to 8,536. 10,000 bits are three codewords of 3,334."""
    table = MCS_TABLE
    one = layout(1000, table[10])
    assert (one.blocks, one.k, one.n, one.mother, one.symbols) == (1, 1000, 3012, 3012, 753)
    slow = layout(1000, table[0])
    assert (slow.n, slow.mother, slow.symbols) == (8534, 5000, 4267)
    long = layout(10_000, table[28])
    assert (long.blocks, long.k, long.n) == (3, 3334, 3606)
    assert layout(3, table[9]).k == 12


def encode(codec: Any, devices: int, reals: int) -> Group:
    """What devices send of random rows."""
    streams = Streams([0], [0], dtype=torch.float64)
    payload = (Group({"a": draw_rows(devices, reals)}),)
    return codec.encode(payload, {}, make_cohort((devices,), devices), 0, streams)[0][0]


@pytest.mark.parametrize("name", ["uniform", "qsgd"])
def test_real_bits_arrive_where_the_channel_is_good(name: str) -> None:
    """Each device at the fastest scheme with a gap of 3 dB arrives: SNRs from -3 to 24 dB, 300 bits
    (repetition at the lowest); costs by the layout of each."""
    streams = Streams([0], [0], dtype=torch.float64)
    codec: Any = make_uniform(4)
    if name == "qsgd":
        codec = Qsgd(Qsgd.Settings(bits=4, norm="max"), {}, streams)
    snr_db = np.array([-3.0, 2.0, 9.0, 16.0, 24.0])
    sent = encode(codec, 5, 59)
    link = Bench([compute_amplitude(10 ** (snr_db / 10))], codec=codec, snr_gap_db=3.0, **LDPC)
    received, report = link.deliver(sent)
    assert report.participants.item() == 5
    assert report.nmse.item() == pytest.approx(0, abs=1e-20)
    torch.testing.assert_close(received.mean[0]["a"][0], sent.tensors["a"].mean(0))
    bits = int(codec.count_bits(sent))
    table = MCS_TABLE
    carried = np.log2(1 + 10 ** ((snr_db - 3) / 10))
    own = [
        max((m for m in table if m.efficiency <= c), key=lambda m: m.efficiency) for c in carried
    ]
    symbols = np.array([layout(bits, m).symbols for m in own])
    np.testing.assert_allclose(report.energy_j[0] * BANDWIDTH / WATT, symbols)
    assert own[0].rate_1024 < 1024 / 5


def test_a_silent_half_of_the_band_is_not_made_up_for_by_the_other() -> None:
    """SNR 100 in half of the band and 0 in the other carry log2(101) / 2 = 3.3 bits a use, like a
    flat channel of 9.6 dB: too little for 3.9 bits. The mean SNR, 17 dB, would carry 5.7."""
    codec = make_uniform(6)
    sent = encode(codec, 2, 100)
    h = compute_amplitude([[100, 0], [100, 100]])[None, :, None, None, :]
    link = Bench(h, codec=codec, mcs_index=22, snr_gap_db=-10.0, **LDPC)
    received, report = link.deliver(sent)
    assert report.participants.item() == 1
    assert_agree(received.mean[0]["a"][0], sent.tensors["a"][1])


def sionna_alone(bits: int, index: int, snr: float, blocks: int) -> int:
    """Wrong blocks of so many, by Sionna's blocks and noise alone."""
    with torch.random.fork_rng():
        from sionna.phy.channel import AWGN
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
        from sionna.phy.mapping import BinarySource, Demapper, Mapper

        order, rate = MCS_TABLE[index]
        coded = math.ceil(bits * 1024 / rate / order) * order
        encode = LDPC5GEncoder(bits, coded, num_bits_per_symbol=order, device="cpu")
        mapper = Mapper("qam", order, device="cpu")
        demapper = Demapper("app", "qam", order, device="cpu")
        sent = BinarySource(device="cpu", seed=1)((blocks, bits))
        no = torch.tensor(1 / snr)
        heard = AWGN(device="cpu")(mapper(encode(sent)), no)
        got = LDPC5GDecoder(encode, device="cpu")(demapper(heard, no))
        return int((got != sent).any(1).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("access", "index", "snr_db"), [("tdma", 5, -0.7), ("ofdma", 12, 5.3)])
def test_block_errors_are_those_of_sionna_alone(access: Any, index: int, snr_db: float) -> None:
    """300 devices' blocks of 96 bits, in OFDMA with 25 dB more in each share of the band, beside
    600 blocks of Sionna's own: QPSK at 0.37 and 16-QAM at 0.42. The difference of two binomial
    shares, level 1e-4."""
    codec, snr = make_uniform(1), 10 ** (snr_db / 10)
    sent = encode(codec, 300, 32)
    h = [compute_amplitude([snr if access == "tdma" else snr / 300] * 300)]
    _, report = Bench(h, codec=codec, access=access, mcs_index=index, **LDPC).deliver(sent)
    wrong, twin = 300 - int(report.participants.item()), sionna_alone(96, index, snr, 600)
    share = (wrong + twin) / 900
    assert 0.1 < share < 0.9
    spread = math.sqrt(share * (1 - share) * (1 / 300 + 1 / 600))
    assert abs(wrong / 300 - twin / 600) < stats.norm.isf(5e-5) * spread


def test_what_it_refuses() -> None:
    for options, message in (
        ({"mcs_index": 3}, "needs rate: mcs"),
        ({"rate": "mcs", "mcs_index": 29}, "less than or equal to 28"),
        ({"coding": "ldpc"}, "set rate: mcs"),
        ({"over_budget": "quantise"}, "needs max_symbols"),
        ({**LDPC, "over_budget": "quantise", "max_symbols": 5.0}, "needs coding: ideal"),
    ):
        with pytest.raises(ValidationError, match=message):
            Digital.Settings(**options)
    streams = Streams([0], [0])
    for codec in (None, Qsgd(Qsgd.Settings(), {}, streams)):
        with pytest.raises(UserError, match="this codec has none"):
            Bench([[1.0]], codec=codec, **LDPC)
