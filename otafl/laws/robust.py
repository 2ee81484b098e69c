"""Check the laws of robust aggregation: groups without attackers, breakdown of rules, and liars."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import optimize, special
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import NO_LIMITS, Cohort, Group
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.devices.faults import Faults
from otafl.laws import sheet
from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    Law,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean_square,
    check_share,
    counts,
    state_law,
)
from otafl.robust import grouping
from otafl.robust.aggregation import RobustAggregation
from otafl.robust.base import Inputs, Rule
from otafl.scenario import load_scenario

SIFAOU = "Sifaou, Li 2021; inclusion and exclusion"
BREAKDOWN = "breakdown point"

DEVICES, GROUPS = 12, 4
N, COORDINATES, SHARE = 11, 6, 0.3
"""Inputs of a rule, their coordinates, and the share f / n that it assumes to be corrupted."""

SNR_DB = 5.0


def compute_clean_groups(devices: int, groups: int, attackers: int) -> np.ndarray:
    """Return the chance of 0, 1, .. G groups without attackers, of equal groups.

    P(C = c) = binom(G, c) sum_i (-1)^i binom(G - c, i) binom(K - (c + i) m, b) / binom(K, b).
    """
    size, whole = devices // groups, math.comb(devices, attackers)
    found = []
    for clean in range(groups + 1):
        terms = [
            (-1) ** i
            * math.comb(groups - clean, i)
            * math.comb(devices - (clean + i) * size, attackers)
            for i in range(groups - clean + 1)
        ]
        found.append(math.comb(groups, clean) * sum(terms) / whole)
    return np.array(found)


@state_law("robust groups: groups without attackers", SIFAOU, "b={}", (1, 2, 3))
def _clean_groups(bench: Bench, attackers: int) -> Iterator[Check]:
    """Deal twelve devices into four groups again and again, the first ones attackers."""
    trials, rounds = 100, bench.scale_size(80)
    pair = torch.arange(trials * DEVICES, device=bench.torch_device)
    weight = torch.ones(len(pair), dtype=torch.float64, device=bench.torch_device)
    cohort = Cohort.create(pair // DEVICES, pair % DEVICES, weight, (DEVICES,) * trials, DEVICES)
    streams = Streams([5] * trials, range(trials), bench.torch_device, torch.float64)
    clean = []
    for round in range(rounds):
        groups = grouping.draw_groups(cohort, GROUPS, round, streams).view(trials, DEVICES)
        hit = torch.zeros(trials, GROUPS, device=groups.device)
        hit.scatter_(1, groups[:, :attackers], 1.0)
        clean.append((hit == 0).sum(1).cpu().numpy())
    law = compute_clean_groups(DEVICES, GROUPS, attackers)
    found = np.bincount(np.concatenate(clean), minlength=GROUPS + 1)
    possible = law > 0
    yield check_exact(0.0, float(found[~possible].sum()), 0.0, "impossible numbers")
    if possible.sum() > 1:
        yield counts(law[possible] * trials * rounds, found[possible])


@state_law("robust groups: equal sizes", "sizes differ by one at most")
def _sizes(bench: Bench) -> Iterator[Check]:
    """Deal thirteen devices into four groups."""
    devices = DEVICES + 1
    pair = torch.arange(2 * devices, device=bench.torch_device)
    weight = torch.ones(len(pair), dtype=torch.float64, device=bench.torch_device)
    cohort = Cohort.create(pair // devices, pair % devices, weight, (devices,) * 2, devices)
    streams = Streams([5] * 2, range(2), bench.torch_device, torch.float64)
    for round in range(8):
        groups = grouping.draw_groups(cohort, GROUPS, round, streams).view(2, devices)
        sizes = torch.stack([(groups == number).sum(1) for number in range(GROUPS)])
        yield check_exact(3.0, float(sizes.min()), 0.0, f"round {round}, smallest")
        yield check_exact(4.0, float(sizes.max()), 0.0, f"round {round}, largest")


@state_law("robust groups: noise of the mean", "G N / (K^2 P), once a group", "G={}", (1, 2, 4))
def _noise(bench: Bench, num_groups: int) -> Iterator[Check]:
    """Compare the squared error of the mean of group means, of twelve devices without fading.

    Each group's noise is divided by its devices and by G.
    """
    point = {"channel": {"name": "awgn", "snr_db": SNR_DB}, "power": "ci"}
    rig = bench.build_rig(DEVICES, 8, point)
    settings = {"name": "groups", "devices": {"count": DEVICES}, "robust": {"groups": num_groups}}
    scenarios = [load_scenario(settings | point)] * rig.num_trials
    robust = RobustAggregation(scenarios, rig.link.transport, rig.streams)
    ones = rig.cohort.weight.new_ones(rig.cohort.num_rows, bench.scale_size(4000))
    state = rig.link.channel.get_state(0)
    received, _ = robust.deliver((Group({"x": ones}),), rig.cohort, state, 0, NO_LIMITS)
    mean = robust.aggregate(received, rig.link.codec.decode, rig.cohort).mean[0]["x"]
    law = 0.5 * num_groups / (DEVICES**2 * db_to_linear(SNR_DB))
    off = (mean - 1.0).cpu().numpy() ** 2
    yield check_mean_square(law, off / law, off.size)


def _make_rule(name: str) -> Rule:
    kind: Any = registry.load_settings_class("rule", name)
    rule: Rule = kind()
    return rule


def _build_inputs(bench: Bench, seed: int, num_coordinates: int = COORDINATES) -> Inputs:
    """Draw normal inputs [8, n, P]."""
    x = np.random.default_rng(seed).standard_normal((8, N, num_coordinates))
    given = torch.from_numpy(x).to(bench.torch_device)
    return Inputs(
        given,
        torch.full_like(given[..., :1], 1.0 / N),
        torch.full((8,), int(SHARE * N), device=given.device),
    )


def _aggregate(rule: Rule, inputs: Inputs) -> Tensor:
    return rule.aggregate(inputs, rule.init(torch.zeros_like(inputs.x[:, 0])))[0]


def _corrupt(inputs: Inputs, num_corrupted: int, scale: float) -> Inputs:
    """Return inputs of which the first ones are all at one place, so far away."""
    x = inputs.x.clone()
    x[:, :num_corrupted] = scale
    return replace(inputs, x=x)


def _bounded_error(bench: Bench, rule: str) -> Iterator[Check]:
    """Corrupt three of eleven inputs, then six, at scales a thousand times apart."""
    made, inputs = _make_rule(rule), _build_inputs(bench, 1)
    most = float(inputs.x.norm(dim=2).max())
    for scale in (1e3, 1e6):
        few = _aggregate(made, _corrupt(inputs, int(SHARE * N), scale)).norm(dim=1)
        many = _aggregate(made, _corrupt(inputs, N // 2 + 1, scale)).norm(dim=1)
        if made.is_robust:
            yield check_at_most(2.0 * most, float(few.max()), 0.0, f"3 of {N} at {scale:g}")
        else:
            yield check_at_least(0.2 * scale, float(few.min()), f"3 of {N} at {scale:g}")
        yield check_at_least(0.2 * scale, float(many.min()), f"6 of {N} at {scale:g}")


def _identical_inputs(bench: Bench, rule: str) -> Iterator[Check]:
    """Aggregate eleven times the same input."""
    made, inputs = _make_rule(rule), _build_inputs(bench, 2)
    same = replace(inputs, x=inputs.x[:, :1].expand(-1, N, -1).contiguous())
    off = (_aggregate(made, same) - same.x[:, 0]).abs().max()
    yield check_exact(0.0, float(off), 1e-9)


def list_laws() -> Iterator[Law]:
    """List the laws that every registered rule keeps."""
    for name in registry.list_names("rule"):
        cited = registry.read_info("rule", name).citation or BREAKDOWN
        for what, run in (
            ("bounded error", _bounded_error),
            ("identical inputs", _identical_inputs),
        ):
            yield Law(f"robust {name}: {what}", cited, functools.partial(run, rule=name))


@state_law("robust geometric_median: least sum of distances", "Weber; scipy's minimiser")
def _least_distances(bench: Bench) -> Iterator[Check]:
    """Compare the sum of distances with that of a minimiser without derivatives."""
    inputs = _build_inputs(bench, 3, 3)
    found = _aggregate(_make_rule("geometric_median"), inputs).cpu().numpy()
    for trial, x in enumerate(inputs.x.cpu().numpy()):

        def total(z: np.ndarray, x: np.ndarray = x) -> float:
            return float(np.linalg.norm(x - z, axis=1).sum())

        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000}
        best = optimize.minimize(total, x.mean(0), method="Nelder-Mead", options=options)
        yield check_exact(best.fun, total(found[trial]), 1e-9, f"trial {trial}, sum")
        off = float(np.abs(best.x - found[trial]).max())
        yield check_exact(0.0, off, 1e-5, f"trial {trial}, point")


@state_law("robust geometric_median: line", "median of an odd number")
def _line(bench: Bench) -> Iterator[Check]:
    inputs = _build_inputs(bench, 4, 1)
    off = _aggregate(_make_rule("geometric_median"), inputs) - inputs.x.median(1).values
    yield check_exact(0.0, float(off.abs().max()), 1e-5)


@state_law("robust geometric_median: rotation and shift", "equivariance")
def _equivariance(bench: Bench) -> Iterator[Check]:
    inputs, rng = _build_inputs(bench, 5), np.random.default_rng(6)
    turn, _ = np.linalg.qr(rng.standard_normal((COORDINATES, COORDINATES)))
    rotation = torch.from_numpy(turn).to(inputs.x)
    rule = _make_rule("geometric_median")
    expected = _aggregate(rule, inputs) @ rotation + 10.0
    moved = _aggregate(rule, replace(inputs, x=inputs.x @ rotation + 10.0))
    yield check_exact(0.0, float((moved - expected).abs().max()), 1e-5)


@state_law("robust krum: picks an input", "Blanchard et al. 2017; n - f - 2 neighbours")
def _krum(bench: Bench) -> Iterator[Check]:
    """Compare with scores that are added up input by input."""
    inputs = _build_inputs(bench, 7)
    found = _aggregate(_make_rule("krum"), inputs).cpu().numpy()
    near = N - int(SHARE * N) - 2
    for trial, x in enumerate(inputs.x.cpu().numpy()):
        away = ((x[:, None] - x[None]) ** 2).sum(2)
        scores = np.sort(away, 1)[:, 1 : near + 1].sum(1)  # without an input's own
        off = float(np.abs(found[trial] - x[scores.argmin()]).max())
        yield check_exact(0.0, off, 0.0, f"trial {trial}")


@state_law(
    "robust votes: liars", "Sahin, Everette, Hoque 2021; shifted counts", "b={}", (0, 1, 2, 3)
)
def _liars(bench: Bench, liars: int) -> Iterator[Check]:
    """Count wrong votes of seven devices that all mean +, of which the first ones lie."""
    devices, num_coordinates, trials = 7, 400, bench.scale_size(40)
    section = {"name": "rayleigh", "snr_db": SNR_DB, "block_symbols": 2}
    transport = {"name": "fsk_majority_vote", "step": 1.0}
    rig = bench.build_rig(devices, trials, {"channel": section, "transport": transport})
    faults = Faults(
        [Faults.Settings(byzantine=liars)] * trials,
        Streams([1] * trials, range(trials), bench.torch_device, torch.float64),
    )
    true = torch.ones(
        trials * devices, num_coordinates, dtype=torch.float64, device=bench.torch_device
    )
    (sent,) = faults.tamper((Group({"x": true}),), rig.cohort, 0)
    votes = rig.send(sent.tensors["x"], 0)[0].cpu().numpy()
    power = 2.0 * db_to_linear(SNR_DB)
    law = sheet.wrong_vote_probability(power * (devices - liars) + 1.0, power * liars + 1.0, 1)
    yield check_share(law, int((votes < 0).sum()), votes.size)


@state_law("robust attacks: a little is enough", "Baruch et al. 2019, Algorithm 3")
def _little(bench: Bench) -> Iterator[Check]:
    """Compare what attackers of two trials send with mean and deviation of the honest updates."""
    devices, attackers = 9, 4
    pair = torch.arange(2 * devices, device=bench.torch_device)
    x = torch.from_numpy(np.random.default_rng(8).standard_normal((2 * devices, COORDINATES)))
    cohort = Cohort.create(
        pair // devices, pair % devices, torch.ones(len(pair)), (devices,) * 2, devices
    )
    section = Faults.Settings.model_validate(
        {"byzantine": attackers, "attack": "a_little_is_enough"}
    )
    streams = Streams([1] * 2, range(2), bench.torch_device, torch.float64)
    group = Group({"x": x.to(bench.torch_device)})
    (sent,) = Faults([section] * 2, streams).tamper((group,), cohort, 0)
    found = sent.tensors["x"].view(2, devices, -1).cpu().numpy()
    honest = x.view(2, devices, -1).numpy()[:, attackers:]
    supporters = devices // 2 + 1 - attackers
    z = float(special.ndtri((devices - attackers - supporters) / (devices - attackers)))
    law = honest.mean(1) - z * honest.std(1, ddof=1)
    off = np.abs(found[:, :attackers] - law[:, None]).max()
    yield check_exact(0.0, float(off), 1e-9)
