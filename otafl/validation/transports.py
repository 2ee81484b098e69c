"""Laws of uplinks that do not distinguish devices: noise, symbols, airtime and energy.

One receiver has one noise. Symbols, seconds and joules follow from powers. Uplinks without phases
have votes by energy, sums of energies, and counts by type: each level has a channel use, in which
the server counts devices. There values are on the levels, so that only noise disturbs them, and
devices invert a channel without fading at the budget P, so that N / eta = N / (M P).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl.core.contracts import LinkReport
from otafl.core.units import db_to_linear
from otafl.validation import sheet
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_square,
    check_normal,
    check_share,
    state_law,
)

N = 0.5
BANDWIDTH_HZ = 2e6
REALS = 50
THERMAL_DBM_PER_HZ = -174.0

INVERSION = {"channel": {"name": "awgn", "snr_db": 10.0}, "power": "ci"}
ONE_NOISE = "N / eta of a sum, for every K"


def _rig(
    bench: Bench, transport: Any, channel: dict[str, Any] | None = None, **sections: Any
) -> Rig:
    section = {"name": "rayleigh", "snr_db": 10.0, "bandwidth_hz": BANDWIDTH_HZ} | (channel or {})
    return bench.build_rig(6, 8, {"channel": section, "transport": transport} | sections)


def _report(bench: Bench, transport: Any, *channel: Any, **sections: Any) -> LinkReport:
    """Return the report of a round in which all devices send REALS."""
    return _transmit(_rig(bench, transport, *channel, **sections))


def _transmit(rig: Rig) -> LinkReport:
    return rig.send(rig.draw_symbols(REALS, 0), 0)[1]


def _sum_errors(rig: Rig, rounds: int) -> np.ndarray:
    """Return the errors [R, S, 64] of the plain sums of several rounds."""
    off = []
    for round in range(rounds):
        x = rig.draw_symbols(64, round, 1.0)
        total = x.view(rig.num_trials, rig.num_devices, -1).sum(1)
        off.append((rig.send(x, round, "none")[0] - total).cpu().numpy())
    return np.stack(off)


@state_law("transport over_the_air: one receiver has one noise", ONE_NOISE, "K={}", (1, 5, 50))
def _one_noise(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the noise of the plain sum of K devices with N / P, whatever K.

    Channel inversion has the gain P = 10.
    """
    ratios = _sum_errors(bench.build_rig(devices, 16, INVERSION), bench.scale_size(16)) ** 2 / (
        N / 10.0
    )
    yield check_mean_square(N / 10.0, ratios, ratios.size)


@state_law("transport over_the_air: noise is white", "independent over symbols, rounds, trials")
def _noise_is_white(bench: Bench) -> Iterator[Check]:
    """Compute mean products of neighbouring symbols, rounds and trials, over the variance."""
    z = _sum_errors(bench.build_rig(2, 64, INVERSION), 16) / math.sqrt(N / 10.0)
    pairs = {
        "symbols": (z[:, :, :-1], z[:, :, 1:]),
        "rounds": (z[:-1], z[1:]),
        "trials": (z[:, :-1], z[:, 1:]),
    }
    for case, (one, other) in pairs.items():
        yield check_normal(0.0, float((one * other).mean()), 1.0 / math.sqrt(one.size), case)


@state_law("transport over_the_air: airtime", "channel uses / bandwidth")
def _airtime(bench: Bench) -> Iterator[Check]:
    """Check the time of one real per channel use, or two, at one use per second and hertz."""
    for quadrature, symbols in ((False, REALS), (True, REALS // 2)):
        report = _report(bench, {"name": "over_the_air", "quadrature": quadrature})
        case = "two quadratures" if quadrature else "one real"
        yield check_exact(symbols / BANDWIDTH_HZ, float(report.airtime_s.mean()), case=case)


@state_law("transport over_the_air: radiated energy", "P x airtime at full power")
def _energy(bench: Bench) -> Iterator[Check]:
    """Check the energy of every device at 0.1 W during the whole slot."""
    report = _report(bench, "over_the_air", {"tx_power_dbm": 20.0}, power="full")
    yield check_exact(0.1 * REALS / BANDWIDTH_HZ, float(report.energy_j.max()))


@state_law("transport over_the_air: physical SNR", "-174 dBm/Hz, noise figure, path loss")
def _physical(bench: Bench) -> Iterator[Check]:
    """Compare the receive scaling of channel inversion with the physical SNR.

    20 dBm are sent over 100 dB of path loss, with thermal noise in the band and a noise figure of 7
    dB.
    """
    channel = {"name": "awgn", "path_loss_db": 100.0, "tx_power_dbm": 20.0, "noise_figure_db": 7.0}
    rig = _rig(bench, "over_the_air", channel | {"snr_db": None}, power="ci")
    record = rig.record(1, REALS, 1.0)
    noise_dbm = THERMAL_DBM_PER_HZ + 10.0 * math.log10(BANDWIDTH_HZ) + 7.0
    yield check_exact(db_to_linear(20.0 - 100.0 - noise_dbm), float(record.eta.mean()))


@state_law(
    "transport over_the_air: total energy", "FedRLR; P of the payload, P / symbols of a symbol"
)
def _total_energy(bench: Bench) -> Iterator[Check]:
    """Compare SNR and energy of the payload under the total-energy convention.

    Channel inversion has the SNR P over its symbols, and the energy is that of 0.1 W for one
    symbol.
    """
    for quadrature, symbols in ((False, REALS), (True, REALS // 2)):
        transport = {"snr_convention": "total_energy", "quadrature": quadrature}
        channel = {"name": "awgn", "tx_power_dbm": 20.0}
        rig = _rig(bench, {"name": "over_the_air"} | transport, channel, power="ci")
        case = "two quadratures" if quadrature else "one real"
        record = rig.record(4, REALS, 1.0)
        power = 1.0 if not quadrature else 2.0  # power of a symbol with unit reals
        yield check_exact(10.0 / symbols / power, float(record.eta.mean()), case=f"{case}, SNR")
        report = _transmit(rig)
        yield check_exact(0.1 / BANDWIDTH_HZ, float(report.energy_j.max()), case=f"{case}, joules")


SNR_DB = 5.0
P = db_to_linear(SNR_DB)
X = (2.0, 1.0, 0.5, -1.0, -0.3)
"""Values of five devices: three votes for +, two for -."""

SAHIN = "Sahin, Everette, Hoque 2021; I_x(A, A)"
CHEN = "Chen, Bozorgasl 2026"
REED = "reed"
COORDINATES = 400
INDEPENDENT = {"block_symbols": 2}
"""Fading that changes after the two channel uses of each coordinate."""

FSK = {"name": "fsk_majority_vote", "step": 1.0}


def _build_rig(bench: Bench, transport: Any, trials: int, channel: Any, **sections: Any) -> Rig:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    return bench.build_rig(len(X), trials, {"channel": section, "transport": transport} | sections)


def _draw_estimates(bench: Bench, transport: Any, antennas: int) -> np.ndarray:
    """Draw 32,000 independent estimates in 80 trials."""
    rig = _build_rig(bench, transport, bench.scale_size(80), INDEPENDENT | {"antennas": antennas})
    return _send_round(rig, COORDINATES)


def _send_round(rig: Rig, num_coordinates: int) -> np.ndarray:
    """Return the estimates [S, P] of a round in which each device repeats its number."""
    x = (
        torch.tensor(X)
        .to(rig.cohort.weight)
        .repeat(rig.num_trials)[:, None]
        .expand(-1, num_coordinates)
    )
    return rig.send(x.contiguous(), 0)[0].cpu().numpy()


@state_law("transport fsk_majority_vote: wrong votes", SAHIN, "A={}", (1, 4))
def _wrong_votes(bench: Bench, antennas: int) -> Iterator[Check]:
    """Count wrong votes of three against two under Rayleigh fading."""
    votes = _draw_estimates(bench, FSK, antennas)
    law = sheet.wrong_vote_probability(2.0 * P * 3 + 1.0, 2.0 * P * 2 + 1.0, antennas)
    yield check_share(law, int((votes < 0).sum()), votes.size)


@state_law("transport reed: unbiased", CHEN, "A={}", (1, 4))
def _check_mean(bench: Bench, antennas: int) -> Iterator[Check]:
    """Average estimates of the mean under Rayleigh fading."""
    yield check_mean(sum(X) / len(X), _draw_estimates(bench, REED, antennas))


@state_law("transport reed: variance", CHEN, "A={}", (1, 4))
def _variance(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare squared errors with the variance under Rayleigh fading."""
    law = sheet.energy_variance(np.array(X), 2.0 * P / max(np.abs(X)), antennas) / len(X) ** 2
    estimates = _draw_estimates(bench, REED, antennas)
    yield check_mean(1.0, (estimates - sum(X) / len(X)) ** 2 / law)


TYPES = "Mergen and Tong 2006"

RANGE = 2.0


@state_law("transport type_based: error", f"{TYPES}; (N/eta) sum v^2 / K^2", "M={}", (2, 5, 16))
def _error(bench: Bench, levels: int) -> Iterator[Check]:
    """Compare the error with the counts as they are; devices are on each level in turn."""
    devices, num_coordinates, snr_db = 8, 512, 3.0
    transport = {"name": "type_based", "range": RANGE, "levels": levels}
    channel = {"name": "awgn", "snr_db": snr_db, "bandwidth_hz": 2e6}
    point = {"channel": channel, "power": "ci", "transport": transport}
    rig = bench.build_rig(devices, 16, point)
    place = (torch.arange(devices)[:, None] + torch.arange(num_coordinates)) % levels
    rows = RANGE * (2.0 * place / (levels - 1) - 1.0)
    x = rows.repeat(rig.num_trials, 1).to(rig.cohort.weight)
    exact = x.view(rig.num_trials, devices, -1).mean(1)
    off = np.stack([(rig.send(x, round)[0] - exact).cpu().numpy() for round in range(4)])
    v = np.linspace(-RANGE, RANGE, levels)
    law = N / (levels * db_to_linear(snr_db)) * (v**2).sum() / devices**2
    yield check_mean_square(law, off**2 / law, off.size)
