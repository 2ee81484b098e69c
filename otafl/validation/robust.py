"""Check the laws of robust aggregation: groups without attackers, breakdown of rules, and liars."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.robust import grouping
from otafl.robust.base import Inputs, Rule
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    counts,
    state_law,
)

SIFAOU = "Sifaou, Li 2021; inclusion and exclusion"
RULES = registry.list_names("rule")

DEVICES, GROUPS = 12, 4
N, COORDINATES, SHARE = 11, 6, 0.3
"""Inputs of a rule, their coordinates, and the share f / n that it assumes to be corrupted."""


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


@state_law("robust: bounded error", "breakdown point", "{}", RULES)
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


@state_law("robust: identical inputs", "a rule returns what all agree on", "{}", RULES)
def _identical_inputs(bench: Bench, rule: str) -> Iterator[Check]:
    """Aggregate eleven times the same input."""
    made, inputs = _make_rule(rule), _build_inputs(bench, 2)
    same = replace(inputs, x=inputs.x[:, :1].expand(-1, N, -1).contiguous())
    off = (_aggregate(made, same) - same.x[:, 0]).abs().max()
    yield check_exact(0.0, float(off), 1e-9)


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
