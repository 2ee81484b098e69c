"""Laws of orthogonal digital transmission: rates, their cost, and the packets that arrive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl.core.contracts import LinkReport
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.uplink.digital.packets import round_randomly
from otafl.validation.bench import CONFORMANCE, Bench, Rig
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_square,
    check_ratios,
    check_share,
    state_law,
)

DEVICES, TRIALS = 6, 8
BANDWIDTH_HZ = 2e6
SNR_DB = 10.0
SNR = db_to_linear(SNR_DB)
REALS = 50
BITS = 32.0 * REALS

ACCESS = ("tdma", "ofdma")

OUTAGE = "(1 + sqrt(v/(v + 4))) / 2"

SCHEMES = {9: 2 * 679.0 / 1024.0, 24: 6 * 772.0 / 1024.0}
"""Bits per channel use of schemes in table 5.1.3.1-1, QPSK and 64-QAM."""

BELOW_DB, ABOVE_DB = -1.0, 2.5
"""Offsets from the SNR whose capacity a scheme has.

With codewords of thousands of channel uses, no code succeeds a decibel below (Polyanskiy, Poor,
Verdu 2010: seven deviations). Those of 5G succeed 2.5 dB above (Richardson, Kudekar 2018).
"""


def build_digital_rig(
    bench: Bench, transport: Any = None, channel: Any = None, **sections: Any
) -> Rig:
    """Build six digital uplinks at 10 dB over Rayleigh fading, with some changes of sections."""
    section = {"name": "rayleigh", "snr_db": SNR_DB, "bandwidth_hz": BANDWIDTH_HZ}
    point = {
        "channel": section | (channel or {}),
        "transport": {"name": "digital", "gain_threshold": 0.0},
    }
    point["transport"] |= transport or {}
    return bench.build_rig(DEVICES, TRIALS, point | sections)


def _send_round(rig: Rig) -> LinkReport:
    return rig.send(rig.draw_symbols(REALS, 0), 0)[1]


def _gains(rig: Rig) -> np.ndarray:
    """Return |h|^2 [S, K, F] of round 0, summed over the antennas by maximum-ratio combining."""
    h = rig.link.channel.get_state(0).h[:, :, :, 0]
    return (h.abs() ** 2).sum(2).cpu().numpy()


def _rates(snr: np.ndarray) -> np.ndarray:
    """Compute the rates [S, K] in bit/s of a band with SNRs [S, K, F]."""
    return np.asarray(BANDWIDTH_HZ * np.log2(1.0 + snr).mean(-1))


@state_law("transport digital: airtime", "Shannon 1948; bits / (B log2(1 + SNR))", "{}", ACCESS)
def _airtime(bench: Bench, access: str) -> Iterator[Check]:
    """Compare the airtime with sum_k bits / (B log2(1 + SNR_k)) for TDMA.

    For OFDMA it is the largest of bits / (B/n log2(1 + n SNR_k)).
    """
    rig = build_digital_rig(bench, {"access": access})
    law = (BITS / _rates(SNR * _gains(rig))).sum(1)
    if access == "ofdma":
        law = (DEVICES * BITS / _rates(DEVICES * SNR * _gains(rig))).max(1)
    yield check_ratios(_send_round(rig).airtime_s.cpu().numpy(), law)


@state_law("transport digital: short of capacity", "bits / (B log2(1 + SNR / (gap x margin)))")
def _short(bench: Bench) -> Iterator[Check]:
    """Compare the airtime with a gap of 3 dB and a margin of 2 dB."""
    rig = build_digital_rig(bench, {"snr_gap_db": 3.0, "margin_db": 2.0})
    law = (BITS / _rates(SNR * _gains(rig) / db_to_linear(5.0))).sum(1)
    yield check_ratios(_send_round(rig).airtime_s.cpu().numpy(), law)


@state_law("transport digital: radiated energy", "P x own time on air", "{}", ACCESS)
def _energy(bench: Bench, access: str) -> Iterator[Check]:
    """Compare the energy with 0.1 W during a device's own turn, or on its part of the band."""
    rig = build_digital_rig(bench, {"access": access}, {"tx_power_dbm": 20.0})
    parts = DEVICES if access == "ofdma" else 1
    law = parts * BITS / _rates(parts * SNR * _gains(rig))
    report = _send_round(rig)
    yield check_ratios(report.on_air_s.cpu().numpy(), law, case="seconds")
    yield check_ratios(report.energy_j.cpu().numpy(), 0.1 * law, case="joules")


@state_law("transport digital: outage with imperfect CSI", OUTAGE, "variance={:g}", (0.01, 0.3))
def _outage(bench: Bench, variance: float) -> Iterator[Check]:
    """Count the updates whose rate, by an estimate with error variance v, exceeds the channel's.

    For correlated exponential gains P(|h_hat|^2 > |h|^2) = (1 + sqrt(v / (v + 4))) / 2.
    """
    rig = build_digital_rig(bench, csi={"name": "error", "variance": variance})
    sent = [
        rig.send(rig.draw_symbols(4, round), round)[1] for round in range(bench.scale_size(128))
    ]
    asked = DEVICES * TRIALS * len(sent)
    lost = asked - sum(float(report.participants.sum()) for report in sent)
    yield check_share(0.5 + 0.5 * math.sqrt(variance / (variance + 4.0)), int(lost), asked)


@state_law("transport digital: weights w / p", "1; (1 - p) / (K p)", "uses={}", (500, 1000))
def _weights(bench: Bench, uses: int) -> Iterator[Check]:
    """Send ones in so many channel uses each, of which 1 - p are lost by outages.

    The mean of K of them is compared with one, and its variance with (1 - p) / (K p) for p =
    exp(-(2^(b / uses) - 1) / SNR).
    """
    transport = {"weighting": "inverse_probability", "max_symbols": DEVICES * uses}
    rig = build_digital_rig(bench, transport)
    ones = torch.ones_like(rig.draw_symbols(REALS, 0))
    rounds = range(bench.scale_size(256))
    found = torch.cat([rig.send(ones, round)[0][:, 0] for round in rounds]).cpu().numpy()
    p = math.exp(-(2.0 ** (BITS / uses) - 1.0) / SNR)
    yield check_mean(1.0, found)
    yield check_mean((1.0 - p) / (DEVICES * p), (found - 1.0) ** 2, "variance")


@state_law(
    "transport digital: LDPC at capacity", "Shannon 1948; 3GPP TS 38.212", "scheme {}", SCHEMES
)
def _ldpc(bench: Bench, index: int) -> Iterator[Check]:
    """Send coded bits below and above the SNR whose capacity the scheme has.

    None of the packets below arrive, and all of those above.
    """
    # compute the SNR in dB with a capacity of so many bits per channel use
    channel = {"name": "awgn", "snr_db": 10.0 * math.log10(2.0 ** SCHEMES[index] - 1.0)}
    channel["device_budget_db"] = (BELOW_DB, ABOVE_DB)
    transport = {"name": "digital", "rate": "mcs", "mcs_index": index, "coding": "ldpc"}
    codec = {"name": "uniform", "bits": 8}
    point = {"channel": channel, "transport": transport, "codec": codec}
    rig = bench.build_rig(DEVICES, 1, point)
    report = rig.send(rig.draw_symbols(400, 0), 0)[1]
    delivered = report.delivered_mask_fns[0]().double().cpu().numpy()
    yield check_exact(0.0, float(delivered[:, 0::2].mean()), case=f"{BELOW_DB:g} dB")
    yield check_exact(1.0, float(delivered[:, 1::2].mean()), case=f"{ABOVE_DB:g} dB")


@state_law(
    "transport digital: fitted rounding", "unbiased; f (1 - f) step^2", "{} bits", (1, 3, 10)
)
def _rounding(bench: Bench, bits: int) -> Iterator[Check]:
    """Round 4,000 copies of a vector to 2^bits levels between its extremes, which are exact.

    The mean error of each other coordinate, and the squared error of all, are compared.
    """
    copies, size = bench.scale_size(4000), 30
    streams = Streams([2], [0], bench.torch_device, torch.float64)
    x = streams.draw_normal(CONFORMANCE, 0, (size,))[0]
    draw = streams.draw_uniform(CONFORMANCE, 1, (copies, size))[0]
    error = round_randomly(x.expand(copies, -1), torch.full((copies,), float(bits)).to(x), draw) - x
    step = (x.amax() - x.amin()) / (2**bits - 1)
    part = ((x - x.amin()) / step).frac()
    inner = (x > x.amin()) & (x < x.amax())
    variance = (step**2 * part * (1.0 - part))[inner]
    yield check_exact(0.0, float(error[:, ~inner].abs().max()), 1e-12, "extremes")
    score = (error[:, inner].mean(0).square() * copies / variance).cpu().numpy()
    yield check_mean_square(1.0, score, score.size, "mean of each coordinate")
    yield check_mean(float(variance.sum()), error.square().sum(1).cpu().numpy(), "squared error")
