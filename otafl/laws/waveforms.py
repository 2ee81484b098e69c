"""Laws of OFDM samples.

Without impairments they are equal to the symbols of `over_the_air`. The laws also cover delays,
carrier offsets, amplifiers and short prefixes. Estimates are complex, with two reals per symbol
(`quadrature`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import integrate, special
from torch import Tensor

from otafl.core.units import db_to_linear
from otafl.laws.bench import CONFORMANCE, Bench, Rig
from otafl.laws.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_ratios,
    state_law,
)
from otafl.uplink.coherent.ofdm_samples import to_samples
from otafl.uplink.impairments.amplifier import peaks

CARRIERS = 64
PREFIX = 16
QUIET_DB = 200.0
"""SNR at which noise is negligible."""

BANDWIDTH_HZ = 5e6
WIDE = {"name": "tdl-c", "subcarrier_groups": CARRIERS, "bandwidth_hz": BANDWIDTH_HZ}
BESIDE: dict[str, dict[str, Any]] = {
    "awgn": {"name": "awgn"},
    "rayleigh": {"name": "rayleigh", "antennas": 2, "block_symbols": 2 * CARRIERS},
    "tdl-c": WIDE | {"delay_spread_s": 3e-7},
    "cdl-d": WIDE | {"name": "cdl-d", "delay_spread_s": 2e-7, "antennas": 2},
}


def _rig(bench: Bench, devices: int, trials: int, **sections: Any) -> Rig:
    base = {"channel": {"name": "awgn", "snr_db": QUIET_DB}, "power": "gbma"}
    own = {"name": "ofdm", "subcarriers": CARRIERS, "prefix": PREFIX, "quadrature": True}
    transport = own | sections.pop("transport", {})
    return bench.build_rig(devices, trials, base | sections | {"transport": transport})


def _complex(num_coordinates: Tensor) -> np.ndarray:
    """Return reals [S, 2 L] as symbols [S, M, n]."""
    one, two = (
        num_coordinates.cpu()
        .numpy()
        .reshape(len(num_coordinates), 2, -1, CARRIERS)
        .transpose(1, 0, 2, 3)
    )
    symbols: np.ndarray = one + 1j * two
    return symbols


def _rows(rig: Rig, symbols: int, round: int = 0) -> Tensor:
    """Draw rows [S * n, P] of several OFDM symbols."""
    return rig.draw_symbols(2 * symbols * CARRIERS, round, 1.0)


def _frequencies() -> np.ndarray:
    """Return the sub-carriers' frequencies about the band's centre, in spacings."""
    return np.arange(CARRIERS) - (CARRIERS - 1) / 2.0


@state_law("transport ofdm: no impairment", "equal to over_the_air", "{}", BESIDE)
def _symbols(bench: Bench, channel: str) -> Iterator[Check]:
    """Compare both transports with the same symbols, noise and seed."""
    sections: dict[str, Any] = {"channel": BESIDE[channel] | {"snr_db": 10.0}}
    sections["power"] = {"name": "tci", "constraint": "peak"}
    sections["impairments"] = {"residual_phase_rad": 0.3}
    wave = _rig(bench, 5, 4, **sections)
    plain = bench.build_rig(
        5, 4, sections | {"transport": {"name": "over_the_air", "quadrature": True}}
    )
    for round in range(2):
        x = _rows(wave, 3, round)
        (one, of_one), (two, of_two) = wave.send(x, round), plain.send(x, round)
        off = float((one - two).norm() / two.norm())
        yield check_exact(0.0, off, 1e-5, "estimates apart")
        yield check_ratios(of_one.nmse.cpu().numpy(), of_two.nmse.cpu().numpy(), 1e-5, "error")


@state_law("transport ofdm: delays within the prefix", "a phase ramp exp(-j 2 pi f D / n)")
def _delays(bench: Bench) -> Iterator[Check]:
    """Delay devices by up to the prefix, over a flat channel."""
    rig = _rig(bench, 6, 4, impairments={"timing_offset": PREFIX / CARRIERS})
    x = _rows(rig, 2)
    estimate, report = rig.send(x, 0)
    transport: Any = rig.link.transport
    late = transport.alignment.impairments.offsets(6, 0)[1].cpu().numpy()
    late = (late - late.min(1, keepdims=True)) * CARRIERS  # [S, K]
    ramp = np.exp(-2j * math.pi * late[..., None] * _frequencies() / CARRIERS)
    gain = report.saved_tensors["c/0"][:, 0].cpu().numpy()
    sent = _complex(x).reshape(rig.num_trials, 6, -1, CARRIERS)
    law = (gain[..., None, None] * ramp[:, :, None] * sent).mean(1)
    off = np.linalg.norm(_complex(estimate) - law) / np.linalg.norm(law)
    yield check_exact(0.0, float(off), 1e-6)


@state_law("transport ofdm: carrier offset", "Dirichlet kernel; phase 2 pi e (1 + prefix/n)")
def _carriers(bench: Bench) -> Iterator[Check]:
    """Compare the power that one sub-carrier of each OFDM symbol has on all sub-carriers."""
    symbols, own, trials = 4, 20, 16
    rig = _rig(bench, 1, trials, impairments={"carrier_offset": 0.1})
    rows = torch.zeros(trials, 2, symbols, CARRIERS, dtype=torch.float64)
    rows[:, 0, :, own] = 1.0
    estimate, report = rig.send(rows.flatten(1).to(rig.cohort.weight), 0)
    transport: Any = rig.link.transport
    e = transport.alignment.impairments.offsets(1, 0)[0].cpu().numpy()[:, 0]
    received = _complex(estimate) / report.saved_tensors["c/0"][:, :1].cpu().numpy()
    gain, turn = received[..., own], math.pi * e * (CARRIERS - 1) / CARRIERS
    kernel = np.sin(math.pi * e) / (CARRIERS * np.sin(math.pi * e / CARRIERS))
    yield check_ratios(np.abs(gain), np.broadcast_to(kernel[:, None], gain.shape), case="own gain")
    step = np.arange(symbols) * (1.0 + PREFIX / CARRIERS)
    turned = np.exp(1j * (turn[:, None] + 2.0 * math.pi * e[:, None] * step))
    yield check_exact(0.0, float(np.abs(gain / np.abs(gain) - turned).max()), case="phase")
    total = (np.abs(received) ** 2).sum(2)
    yield check_ratios(total, np.ones_like(total), case="power of all sub-carriers")
    lost = 1.0 - np.abs(gain[:, 0]) ** 2
    near = (math.pi * e) ** 2 / 3.0
    yield check_ratios(lost, near, float((math.pi * np.abs(e).max()) ** 2) / 5.0, "lost power")


@state_law(
    "transport ofdm: peaks", "1 - (1 - exp(-g))^n of CN(0, 1) sub-carriers", "n={}", (16, 64)
)
def _peaks(bench: Bench, carriers: int) -> Iterator[Check]:
    """Compare the peaks of normal sub-carriers, and the reported mean.

    The mean follows the harmonic number of n.
    """
    streams = _rig(bench, 1, 1).streams
    draw = streams.draw_normal(
        CONFORMANCE / "peaks", carriers, (bench.scale_size(8192), carriers, 2)
    )[0]
    found = peaks(to_samples(torch.view_as_complex(draw.contiguous() * math.sqrt(0.5)), carriers))
    yield check_distribution(found.cpu().numpy(), lambda g: (1.0 - np.exp(-g)) ** carriers)
    rig = _rig(bench, 4, 32, transport={"subcarriers": carriers})
    for round in range(bench.scale_size(4)):
        rig.send(rig.draw_symbols(2 * 32 * carriers, round), round)
    reported = db_to_linear(rig.link.transport.compute_metrics()["papr_db"].cpu().numpy())
    yield check_mean((1.0 / np.arange(1, carriers + 1)).sum(), reported, "reported")


CLIPPED = "Bussgang; 1 - exp(-g^2) + sqrt(pi)/2 g erfc(g)"


@state_law("transport ofdm: amplifier", "Bussgang; Rapp 1991", "{:g} dB", (0.0, 3.0, 8.0))
def _amplifier(bench: Bench, backoff_db: float) -> Iterator[Check]:
    """Compare the gain and distortion of a Rapp amplifier with integrals.

    The symbols are normal, at the budget. The integrals are over the exponential law of a sample's
    power.
    """
    smoothness = 1.5
    keys = {"amplifier": "rapp", "backoff_db": backoff_db, "smoothness": smoothness}
    level = db_to_linear(backoff_db)

    def amplify(power: float) -> float:
        return math.sqrt(power) / (1.0 + (power / level) ** smoothness) ** (0.5 / smoothness)

    def over(value: Any) -> float:
        return float(integrate.quad(lambda g: value(g) * math.exp(-g), 0.0, 60.0, limit=200)[0])

    gain = over(lambda g: amplify(g) * math.sqrt(g))
    power = over(lambda g: amplify(g) ** 2)
    yield from _check_distortion(bench, _rig(bench, 1, 32, transport=keys), gain, power)


@state_law("transport ofdm: clipping", CLIPPED, "{:g} dB", (-6.0, 0.0, 6.0))
def _clipping(bench: Bench, clip_db: float) -> Iterator[Check]:
    """Compare the gain and distortion of clipped amplitudes, of normal symbols at the budget."""
    g = math.sqrt(db_to_linear(clip_db))
    gain = -math.expm1(-(g**2)) + math.sqrt(math.pi) / 2.0 * g * special.erfc(g)
    rig = _rig(bench, 1, 32, impairments={"clip_db": clip_db})
    yield from _check_distortion(bench, rig, gain, -math.expm1(-(g**2)))


def _check_distortion(bench: Bench, rig: Rig, gain: float, power: float) -> Iterator[Check]:
    """Compare Bussgang's gain, and the squared error vector for the power of the samples."""
    found = []
    for round in range(bench.scale_size(8)):
        x = _rows(rig, 16, round)
        estimate, report = rig.send(x, round)
        ideal = report.saved_tensors["c/0"][:, :1].cpu().numpy() * _complex(x)
        received = (_complex(estimate) * ideal.conj()).sum((1, 2)).real
        found.append(received / (np.abs(ideal) ** 2).sum((1, 2)))
    finite = 0.5 / (16 * CARRIERS)  # because the mean power of a payload does not vary
    yield check_mean(gain, np.array(found), "Bussgang gain", bias=finite)
    vector = rig.link.transport.compute_metrics()["evm"].cpu().numpy() ** 2
    law = power / gain**2 - 1.0
    yield check_mean(law, vector, "squared error vector", bias=2.0 * law * finite + finite**2)


@state_law(
    "transport ofdm: beyond the prefix", "2 sum E J / n of the paths outside", "{}", (0, 4, 8)
)
def _check_beyond_prefix(bench: Bench, prefix: int) -> Iterator[Check]:
    """Compare the error without noise with that of the paths beyond the prefix.

    It is computed from their waves, and from their energies times the samples J that each misses.
    """
    symbols, trials = bench.scale_size(64), 32
    channel = WIDE | {"snr_db": QUIET_DB, "delay_spread_s": 2e-7}
    rig = _rig(bench, 1, trials, channel=channel, transport={"prefix": prefix})
    x = _rows(rig, symbols)
    estimate, report = rig.send(x, 0)
    saved = {name: value.cpu().numpy() for name, value in report.saved_tensors.items()}
    sent = np.stack([_at_carriers(row) for row in x.cpu().numpy()])
    received = np.stack([_at_carriers(row) for row in estimate.cpu().numpy()])
    off = received - saved["c/0"][:, None, :, 0] * sent
    paths = rig.link.channel.get_state(0).paths_fn
    assert paths is not None
    found = paths(1)
    a = found.a[:, 0, 0, 0].cpu().numpy()
    delay = found.delay_s.expand(trials, -1, -1, -1)[:, 0, 0].cpu().numpy() * BANDWIDTH_HZ
    scale = saved["p/0"][..., 0] / np.sqrt(saved["eta/0"])  # [S, n]
    laws = [
        _compute_outside(*select_trial, prefix)
        for select_trial in zip(a, delay, scale, strict=True)
    ]
    exact, simple = np.array(laws).T
    measured = (np.abs(off[:, 1:]) ** 2).mean((1, 2)) / (np.abs(sent) ** 2).mean((1, 2))
    yield check_mean(1.0, measured / exact, "from the waves")
    yield check_mean(1.0, measured / simple, "energy outside", bias=0.1)


def _at_carriers(row: np.ndarray) -> np.ndarray:
    """Return reals [2 L] of a channel with a group per sub-carrier as symbols [M, n]."""
    one, two = row.reshape(2, CARRIERS, -1)
    symbols: np.ndarray = (one + 1j * two).T
    return symbols


def _compute_outside(
    a: np.ndarray, delay: np.ndarray, scale: np.ndarray, prefix: int
) -> tuple[float, float]:
    """Compute the mean squared error of a sub-carrier by paths beyond the prefix.

    Parameters
    ----------
    a, delay : ndarray, [L]
        Paths, and their delays in samples.
    scale : ndarray, [n]
        Scale of the independent symbols of power one.
    prefix : int
        Samples of the prefix.

    Returns
    -------
    tuple of float
        Error from the waves of the missed samples, and from their energy only.
    """
    missing = np.maximum(np.ceil(delay - prefix), 0.0)
    wave = np.exp(-2j * math.pi * np.outer(delay, _frequencies()) / CARRIERS)
    through = np.zeros((CARRIERS, CARRIERS), dtype=complex)  # from sub-carrier to sub-carrier
    bins = np.arange(CARRIERS)
    for j in range(int(missing.max())):
        outside = (a * (missing > j)) @ wave * scale
        through += np.exp(2j * math.pi * np.subtract.outer(bins, bins).T * j / CARRIERS) * outside
    exact = 2.0 * (np.abs(through) ** 2).sum() / CARRIERS**3
    energy = (np.abs(a) ** 2 * missing).sum() / CARRIERS
    return float(exact), float(2.0 * energy * (np.abs(scale) ** 2).mean())


@state_law("transport ofdm: channel uses and power", "(n + prefix) samples at P")
def _uses(bench: Bench) -> Iterator[Check]:
    """Count whole OFDM symbols with their prefixes, and their energy."""
    for num_coordinates, prefix in itertools.product((640, 650), (0, PREFIX)):
        case = f"{num_coordinates} reals, prefix {prefix}"
        rig = _rig(
            bench,
            4,
            2,
            power="full",
            transport={"prefix": prefix, "quadrature": False},
            channel={"name": "awgn", "snr_db": 10.0, "bandwidth_hz": BANDWIDTH_HZ},
        )
        report = rig.send(rig.draw_symbols(num_coordinates, 0), 0)[1]
        samples = -(-num_coordinates // CARRIERS) * (CARRIERS + prefix)
        yield check_exact(samples, float(report.symbols.max()), case=case)
        yield check_exact(samples / BANDWIDTH_HZ, float(report.airtime_s.max()), case=f"{case}, s")
        yield check_exact(
            samples / BANDWIDTH_HZ, float(report.on_air_s.max()), case=f"{case}, on air"
        )
        radiated = num_coordinates * (1.0 + prefix / CARRIERS) * 0.1 / BANDWIDTH_HZ
        yield check_exact(radiated, float(report.energy_j.max()), case=f"{case}, joules")


SAMPLES = "otafl.uplink.coherent.ofdm_samples"
