"""Laws of non-coherent aggregation: votes by energy, and sums of energies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from otafl.core.contracts import Group
from otafl.core.units import db_to_linear
from otafl.laws import sheet
from otafl.laws.bench import Bench, Rig
from otafl.laws.checks import Check, check_exact, check_mean, check_normal, check_share, state_law
from otafl.uplink.base import deliver

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


@state_law("transport fsk_majority_vote: gains weigh votes", SAHIN)
def _near_votes(bench: Bench) -> Iterator[Check]:
    """Count votes for two devices with a larger budget against three."""
    trials, powers = bench.scale_size(8_000), np.array([1.0, 1.0, 1.0, 4.0, 4.0])
    rig = _build_rig(bench, FSK, trials, {})
    rig.link.budget.budget.copy_(torch.from_numpy(P * powers).expand(trials, -1))
    plus = int((_send_round(rig, 1) > 0).sum())
    law = sheet.wrong_vote_probability(2.0 * P * 8 + 1.0, 2.0 * P * 3 + 1.0, 1)
    yield check_share(law, plus, trials)


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


@state_law("transport reed: variance given the channels", "(S + sigma^2)^2 - sum (a g x)^2")
def _conditional_error(bench: Bench) -> Iterator[Check]:
    """Compare estimates about their mean over many coordinates of the same channels."""
    rig = _build_rig(bench, REED, bench.scale_size(64), {})
    h = rig.link.channel.get_state(0).h.abs().square().flatten(1).cpu().numpy()
    a = 2.0 * P / max(np.abs(X))
    found = _send_round(rig, 4096)
    center = (h * np.array(X)).sum(1) / len(X)
    law = sheet.energy_variance_given(np.array(X), a, h) / len(X) ** 2
    off = (found - center[:, None]) / np.sqrt(law)[:, None]
    yield check_normal(0.0, float(off.mean()), 1.0 / np.sqrt(off.size), "mean")
    yield check_mean(1.0, (off**2).mean(1), "variance")


@state_law(
    "transport reed: gains weigh devices without calibration", CHEN, "calibrate={}", (False, True)
)
def _weights(bench: Bench, calibrate: bool) -> Iterator[Check]:
    """Average estimates of devices with unequal large-scale gains."""
    gains = np.array([4.0, 2.0, 1.0, 1.0, 0.5])
    rig = _build_rig(
        bench, {"name": REED, "calibrate": calibrate}, bench.scale_size(80), INDEPENDENT
    )
    state = rig.link.channel.get_state(0)
    state = replace(state, gain=torch.from_numpy(gains).to(state.gain).expand(rig.num_trials, -1))
    x = torch.tensor(X).to(state.gain).repeat(rig.num_trials)[:, None].repeat(1, COORDINATES)
    received, _ = deliver(rig.link.transport, (Group({"x": x}),), rig.cohort, state, 0)
    weight = np.ones(len(X)) if calibrate else gains
    law = float((weight * np.array(X)).sum() / weight.sum())
    yield check_mean(law, received.mean[0]["x"].cpu().numpy())


@state_law("non-coherent transports: symbols and energy", "two uses a real; P x airtime at most")
def _cost(bench: Bench) -> Iterator[Check]:
    """Check channel uses and energy of 50 reals from every device at 0.1 W.

    A vote takes all the energy, and REED takes it for the largest |x|.
    """
    channel = {"tx_power_dbm": 20.0, "bandwidth_hz": 2e6}
    for transport, name in ((FSK, "votes"), (REED, "energies")):
        rig = _build_rig(bench, transport, 4, channel)
        x = torch.tensor(X).to(rig.cohort.weight).repeat(4)[:, None].expand(-1, 50).contiguous()
        report = rig.send(x, 0)[1]
        yield check_exact(100.0, float(report.symbols.mean()), case=f"{name}, channel uses")
        part = np.ones(len(X)) if name == "votes" else np.abs(X) / max(np.abs(X))
        off = report.energy_j.cpu().numpy() / (0.1 * 100 / 2e6 * part)
        yield check_exact(
            1.0, float(off[np.unravel_index(np.abs(off - 1).argmax(), off.shape)]), case=name
        )
        yield check_exact(
            0.0 if name == "votes" else 5.0, float(report.side_symbols.mean()), case=f"{name}, side"
        )
