"""Laws of the privacy by an over-the-air uplink's noise.

An attacker tells two neighbouring inputs apart by the signals that the server gets.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.laws.bench import Bench, Rig
from otafl.laws.checks import (
    Check,
    Law,
    check_at_least,
    check_at_most,
    check_exact,
    check_normal,
    check_ratios,
    check_share,
    state_law,
)
from otafl.privacy.accounting import (
    LEVELS,
    LEVELS_AN_OCTAVE,
    compute_delta,
    compute_mu,
    compute_sampled_epsilon,
    get_level_mu,
)

N = 0.5
CLIP = 0.3
REALS = 24
DELTA = 1e-5
LIU = "Liu, Simeone 2021"
DONG = "Dong, Roth, Su 2019"
ANTENNAS, DEVICES = 3, 5


def integrate_delta(density: np.ndarray, other: np.ndarray, epsilon: float, step: float) -> float:
    r"""Integrate delta(epsilon) of two densities.

    Parameters
    ----------
    density, other : ndarray, [n]
        Densities p and q on a grid.
    epsilon : float
        Bound on the privacy loss.
    step : float
        Step of the grid.

    Returns
    -------
    float
        Probability delta.

    Notes
    -----
    .. math:: \delta(\epsilon) = \int \max(p - e^\epsilon q, 0)
    """
    return float(np.clip(density - np.exp(epsilon) * other, 0.0, None).sum() * step)


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


def _get_result(rig: Rig, name: str = "dp_mu") -> np.ndarray:
    """Return a result of the trials so far."""
    return rig.link.transport.compute_metrics()[name].cpu().numpy()


@state_law("privacy: delta of mu-GDP", f"{DONG}, corollary 2.13", "mu={:g}", (0.05, 1.0, 4.0))
def _gaussian(bench: Bench, mu: float) -> Iterator[Check]:
    """Compare delta(epsilon) with the integral of (p - e^epsilon q)+ of N(mu, 1) and N(0, 1)."""
    x, step = np.linspace(-12.0, 16.0, 400_001, retstep=True)
    for epsilon in (0.0, 0.3 * mu, mu + mu**2):
        law = integrate_delta(stats.norm.pdf(x - mu), stats.norm.pdf(x), epsilon, float(step))
        yield check_exact(law, compute_delta(mu, epsilon), 1e-5, f"epsilon={epsilon:g}")


@state_law("privacy: clipped norms", f"{LIU}; x min(1, C / |x|)")
def _check_clipping(bench: Bench) -> Iterator[Check]:
    """Compare norms, and the estimate, with those of payloads that are scaled down to norm C.

    Norms are from C / 10 to 10 C, with one real per symbol or two. The estimate without noise and
    fading is the mean of the clipped payloads.
    """
    norms = np.geomspace(0.1, 10.0, DEVICES) * CLIP
    powers = torch.from_numpy(norms**2 / REALS)
    channel = {"name": "awgn", "snr_db": 200.0}
    for quadrature in (False, True):
        transport = {"name": "over_the_air", "quadrature": quadrature}
        rig = _build_rig(bench, 8, "ci", channel=channel, transport=transport)
        x = rig.draw_symbols(REALS, 0, powers)
        estimate, report = rig.send(x, 0)
        rows = x.view(rig.num_trials, DEVICES, REALS).cpu().numpy()
        short = rows * np.minimum(1.0, CLIP / norms)[:, None]
        case = "two reals a symbol" if quadrature else "one real a symbol"
        sent = np.sqrt(
            np.einsum("skk->sk", report.saved_tensors["gram/0"][:, 0].real.cpu().numpy())
        )
        yield check_ratios(sent, np.linalg.norm(short, axis=-1), case=f"{case}, norms")
        off = np.abs(estimate.cpu().numpy() - short.mean(1)).max() / CLIP
        yield check_exact(0.0, float(off), 1e-6, f"{case}, their mean")


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
            yield check_ratios(_get_result(rig), law, 1e-6, f"{adversary}, {adjacency}, {power}")


def _run_attacker(rig: Rig, rounds: int, worst: np.ndarray, sign: float) -> np.ndarray:
    """Compute an attacker's score [S]: the weighted mean of the estimates over its deviation.

    Device `worst` [S] sends C, or -C, along one direction in all rounds.
    """
    x = torch.zeros(rig.num_trials, rig.num_devices, REALS, dtype=rig.cohort.weight.dtype)
    direction = np.full(REALS, REALS**-0.5)
    x[torch.arange(rig.num_trials), torch.from_numpy(worst)] = torch.from_numpy(
        sign * CLIP * direction
    )
    rows = x.flatten(0, 1).to(rig.cohort.weight)
    score, mu2 = np.zeros(rig.num_trials), np.zeros(rig.num_trials)
    for round in range(rounds):
        estimate, report = rig.send(rows, round)
        saved = {name: value.cpu().numpy() for name, value in report.saved_tensors.items()}
        on = saved["active/0"][:, 0].sum(1)
        root_eta = np.sqrt(saved["eta/0"][:, 0])
        seen = (estimate.cpu().numpy() @ direction) * on * root_eta / np.sqrt(N)
        gain = (
            (saved["c/0"][np.arange(rig.num_trials), 0, worst] * root_eta) * 2.0 * CLIP / np.sqrt(N)
        )
        score, mu2 = score + gain * seen, mu2 + gain**2
    return score / np.sqrt(mu2)


@state_law("privacy: an attacker is on the curve", f"{DONG}; N(0, 1) from N(mu, 1)", "T={}", (1, 4))
def _attack(bench: Bench, rounds: int) -> Iterator[Check]:
    """Compare the score of the best test between a payload and its opposite with its law.

    The test uses all signals of the worst device under Rayleigh fading. Its score is N(mu/2, 1) or
    N(-mu/2, 1).
    """
    trials = bench.scale_size(1024)
    probe = _build_rig(bench, trials)
    for round in range(rounds):
        probe.send(probe.draw_symbols(REALS, round, 1.0), round)
    transport: Any = probe.link.transport
    worst = transport.privacy.spent.argmax(1).cpu().numpy()
    mu = _get_result(probe)
    one = _run_attacker(_build_rig(bench, trials), rounds, worst, 1.0) - mu / 2.0
    other = _run_attacker(_build_rig(bench, trials), rounds, worst, -1.0) + mu / 2.0
    yield check_normal(0.0, float(one.mean()), 1.0 / np.sqrt(trials), "score of one")
    yield check_normal(0.0, float(other.mean()), 1.0 / np.sqrt(trials), "score of the other")


@state_law("privacy: hits at 5 % false alarms", f"{DONG}; Phi(Phi^-1(0.05) + mu)")
def _hits(bench: Bench) -> Iterator[Check]:
    """Count hits of the same attack without fading, with which all trials have one mu."""
    trials, rounds = bench.scale_size(4096), 3
    flat = {"name": "awgn", "snr_db": -14.0}
    worst = np.zeros(trials, np.int64)
    rig = _build_rig(bench, trials, channel=flat)
    score = _run_attacker(rig, rounds, worst, 1.0)
    mu = float(_get_result(rig)[0])
    null = _run_attacker(_build_rig(bench, trials, channel=flat), rounds, worst, -1.0)
    threshold = stats.norm.isf(0.05) - mu / 2.0
    hits = stats.norm.sf(stats.norm.isf(0.05) - mu)
    yield check_share(hits, int((score > threshold).sum()), trials, "hits")
    yield check_share(0.05, int((null > threshold).sum()), trials, "false alarms")


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
        yield check_at_most(bound, float(_get_result(rig).max()), 1e-6, name)
        if power == "full":
            yield check_ratios(_get_result(rig), np.full(8, bound), 1e-6, "full, spent")


@state_law("privacy: all servers count", f"{LIU}; sum_c |h_ck|^2", "{}", ("curious", "honest"))
def _servers(bench: Bench, adversary: str) -> Iterator[Check]:
    """Compare dp_mu of seven servers with the gains to all of them.

    Without fading the gains are known, and honest servers have less by their phases. With fading a
    bound is kept.
    """
    cells = {"name": "cells", "servers": 7, "cross_gain_db": -10.0}
    flat = {"name": "awgn", "snr_db": -14.0}
    section: dict[str, Any] = {"adversary": adversary}
    rig = _build_rig(bench, 2, "gbma", channel=flat, privacy=section, topology=cells)
    for round in range(3):
        rig.send(rig.draw_symbols(REALS, round, 1.0), round)
    law = np.sqrt(3 * 4.0 * 10.0**-1.4 * REALS * (1.0 + 6 * 0.1) / N)
    if adversary == "curious":
        yield check_ratios(_get_result(rig), np.full(rig.num_trials, law), 1e-6, "no fading")
    else:
        own = law / np.sqrt(1.6)
        yield check_at_most(law, float(_get_result(rig).max()), 1e-6, "no fading")
        yield check_at_least(own, float(_get_result(rig).min()), "no fading, its own server")
    section |= {"epsilon": 0.7}
    faded = {"antennas": 2, "snr_db": 10.0}
    rig = _build_rig(bench, 2, "full", 3, privacy=section, topology=cells, channel=faded)
    for round in range(3):
        rig.send(rig.draw_symbols(REALS, round, 1.0), round)
    yield check_at_most(compute_mu(0.7, DELTA), float(_get_result(rig).max()), 1e-6, "bound")


def _check_sampling(bench: Bench, probability: float) -> Iterator[Check]:
    """Compare the package's epsilon of a round with the integral delta(epsilon).

    If all devices take part, it is compared with mu-GDP.
    """
    x, step = np.linspace(-14.0, 14.0, 400_001, retstep=True)
    level = LEVELS - 1 - LEVELS_AN_OCTAVE
    mu, absent = get_level_mu(level), stats.norm.pdf(x)
    for replace in (True, False):
        epsilon = compute_sampled_epsilon(((level, 1),), probability, 1e-3, replace)
        half = mu / 2.0 if replace else mu
        one = (1.0 - probability) * absent + probability * stats.norm.pdf(x - half)
        other = (1.0 - probability) * absent
        other = other + probability * (stats.norm.pdf(x + half) if replace else absent)
        delta = max(
            integrate_delta(one, other, epsilon, float(step)),
            integrate_delta(other, one, epsilon, float(step)),
        )
        case = "replace" if replace else "add or remove"
        yield check_exact(1e-3, delta, 0.02, case)
        every = compute_sampled_epsilon(((level, 4),), 1.0 - 1e-9, DELTA, replace)
        yield check_exact(DELTA, compute_delta(2.0 * mu, every), 0.02, f"{case}, all")
        yield check_at_least(epsilon, every, f"{case}, more rounds")


def list_left_out() -> str:
    """Return a note on the laws that are left out, and the reason; empty if none is."""
    if importlib.util.find_spec("dp_accounting") is not None:
        return ""
    return (
        "not checked: 'privacy: sampled devices', which needs a package; use pip install "
        "'otafl[privacy]'"
    )


def list_laws() -> Iterator[Law]:
    """List the laws that need a package, if it is installed."""
    if importlib.util.find_spec("dp_accounting") is not None:
        source = "(1 - q) N(0, 1) + q N(mu, 1), one round"
        yield state_law("privacy: sampled devices", source, "q={:g}", (0.1, 0.6))(_check_sampling)


MODULE = "otafl.privacy.mechanism"
