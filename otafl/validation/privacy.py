"""Laws of the privacy by an over-the-air uplink's noise.

An attacker tells two neighbouring inputs apart by the signals that the server gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.privacy.accounting import compute_delta, compute_mu
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import Check, check_at_most, check_exact, check_ratios, state_law

N = 0.5
CLIP = 0.3
REALS = 24
DELTA = 1e-5
LIU = "Liu, Simeone 2021"
DONG = "Dong, Roth, Su 2019"
ANTENNAS, DEVICES = 3, 5


def _build_rig(
    bench: Bench, trials: int, power: Any = "full", rounds: int = 4, **sections: Any
) -> Rig:
    """Build an uplink whose payloads are clipped."""
    channel = {"name": "rayleigh", "snr_db": -14.0} | sections.pop("channel", {})
    section = {"clip": CLIP, "delta": DELTA} | sections.pop("privacy", {})
    point = {
        "channel": channel,
        "power": power,
        "privacy": section,
        "training": {"rounds": rounds, "weights": "uniform"},
    }
    return bench.build_rig(DEVICES, trials, point | sections)


def _get_mu(rig: Rig) -> np.ndarray:
    """Return dp_mu of the trials so far."""
    return rig.link.transport.compute_metrics()["dp_mu"].cpu().numpy()


@state_law("privacy: delta of mu-GDP", f"{DONG}, corollary 2.13", "mu={:g}", (0.05, 1.0, 4.0))
def _gaussian(bench: Bench, mu: float) -> Iterator[Check]:
    """Compare delta(epsilon) with the integral of (p - e^epsilon q)+ of N(mu, 1) and N(0, 1)."""
    x, step = np.linspace(-12.0, 16.0, 400_001, retstep=True)
    for epsilon in (0.0, 0.3 * mu, mu + mu**2):
        loss = stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x)
        law = float(np.clip(loss, 0.0, None).sum() * step)
        yield check_exact(law, compute_delta(mu, epsilon), 1e-5, f"epsilon={epsilon:g}")


def _compute_mu(rig: Rig, rounds: int, honest: bool, distance: float) -> np.ndarray:
    """Compute mu [S] of several rounds, from the channels and the transmit scalars."""
    total = np.zeros((rig.num_trials, rig.num_devices))
    for round in range(rounds):
        _, report = rig.send(rig.draw_symbols(REALS, round, 1.0), round)
        saved = {name: value.cpu().numpy() for name, value in report.saved_tensors.items()}
        state = rig.link.channel.get_state(round)
        h = state.extend_to(REALS).cpu().numpy()[..., 0]  # [S, K, A, B]
        h = h * np.sqrt(state.gain.cpu().numpy())[..., None, None]
        receive_power = (np.abs(h) ** 2).sum(2) * np.abs(saved["p/0"].swapaxes(1, 2)) ** 2
        if honest:
            receive_power = (saved["h/0"] * saved["p/0"]).real.swapaxes(1, 2) ** 2
        total += (distance * CLIP) ** 2 * receive_power.max(2) / N
    return np.asarray(np.sqrt(total.max(1)))


@state_law("privacy: mu of the transmissions", f"{LIU}; sum_t (2 C g_kt)^2 / N, max_k")
def _check_accounting(bench: Bench) -> Iterator[Check]:
    """Compare dp_mu with that of the fades and transmit scalars of three rounds.

    Each round has two coherence blocks.
    """
    channel = {"antennas": ANTENNAS, "block_symbols": REALS // 2}
    for adversary in ("curious", "honest"):
        for adjacency, distance in (("replace", 2.0), ("add_remove", 1.0)):
            section = {"adversary": adversary, "adjacency": adjacency}
            power = "cao_static" if adversary == "honest" else "full"
            rig = _build_rig(bench, 4, power, channel=channel, privacy=section)
            law = _compute_mu(rig, 3, adversary == "honest", distance)
            yield check_ratios(_get_mu(rig), law, 1e-6, f"{adversary}, {adjacency}, {power}")


@state_law(
    "privacy: a bound is kept", f"{LIU}; dp_mu <= mu(epsilon, delta)", "{}", ("even", "left")
)
def _check_bound(bench: Bench, split: str) -> Iterator[Check]:
    """Bound dp_mu after all rounds by the mu of epsilon, which full power reaches."""
    section = {"epsilon": 0.7, "split": split}
    bound = compute_mu(0.7, DELTA)
    for power in ("full", "gbma", "cotaf", {"name": "tci", "constraint": "peak"}):
        antennas = 1 if power == "gbma" else 2  # with more, its means over fading take long
        channel = {"antennas": antennas, "snr_db": 10.0}
        rig = _build_rig(bench, 8, power, 6, privacy=section, channel=channel)
        for round in range(6):
            rig.send(rig.draw_symbols(REALS, round, 1.0), round)
        name = power if isinstance(power, str) else power["name"]
        yield check_at_most(bound, float(_get_mu(rig).max()), 1e-6, name)
        if power == "full":
            yield check_ratios(_get_mu(rig), np.full(8, bound), 1e-6, "full, spent")
