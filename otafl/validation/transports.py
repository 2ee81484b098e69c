"""Laws of uplinks that do not distinguish devices: noise, symbols, airtime and energy.

One receiver has one noise. Symbols, seconds and joules follow from powers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.core.contracts import LinkReport
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import Check, check_exact, check_mean_square, check_normal, state_law

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
