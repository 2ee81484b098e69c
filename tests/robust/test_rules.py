"""Every robust rule, alone: against looped twins, and by its axioms.

The twins are written from the papers, one trial and one vector at a time. `test_byzfl.py` compares
with another package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from otafl.core import registry
from otafl.robust.base import Inputs, Rule

pytestmark = pytest.mark.exact

Array = np.ndarray
ROBUST = [
    name for name in registry.list_names("rule") if registry.load_component("rule", name).is_robust
]
SHARES = {7: 0.2, 8: 0.25}
"""Number of inputs -> assumed share."""


def make(name: str, **keys: Any) -> Rule:
    kind: Any = registry.load_settings_class("rule", name)
    rule: Rule = kind(**keys)
    return rule


def build_inputs(x: Array, share: float = 0.2, there: Array | None = None) -> Inputs:
    """Inputs [S, n, P] of equal weights, of which some [S, n] bool were delivered."""
    there = np.ones(x.shape[:2], bool) if there is None else there
    weight = torch.from_numpy(there / x.shape[1])[..., None]
    found = torch.from_numpy(np.floor(share * there.sum(1) + 1e-9).astype(np.int64))
    return Inputs(torch.from_numpy(np.where(there[..., None], x, 0.0)), weight, found)


def apply(rule: Rule, inputs: Inputs) -> Array:
    memory = rule.init(torch.zeros_like(inputs.x[:, 0]))
    return rule.aggregate(inputs, memory)[0].numpy()


def loop_median(x: Array, f: int) -> Array:
    out = []
    for column in x.T:
        ordered = sorted(column)
        n = len(ordered)
        odd = n % 2 == 1
        out.append(ordered[n // 2] if odd else (ordered[n // 2 - 1] + ordered[n // 2]) / 2)
    return np.array(out)


def loop_trimmed(x: Array, f: int) -> Array:
    return np.array([np.mean(sorted(column)[f : len(column) - f]) for column in x.T])


def loop_scores(x: Array, f: int) -> list[float]:
    scores = []
    for i, own in enumerate(x):
        away = sorted(float(((own - other) ** 2).sum()) for j, other in enumerate(x) if j != i)
        scores.append(sum(away[: max(1, len(x) - f - 2)]))
    return scores


def loop_krum(x: Array, f: int) -> Array:
    return x[int(np.argmin(loop_scores(x, f)))]


def loop_multi_krum(x: Array, f: int) -> Array:
    order = np.argsort(loop_scores(x, f), kind="stable")
    return x[order[: len(x) - f]].mean(0)


def loop_geometric(x: Array, f: int) -> Array:
    z = x.mean(0)
    for _ in range(5000):
        weights = [1.0 / max(1e-12, math.dist(own, z)) for own in x]
        z = sum(w * own for w, own in zip(weights, x, strict=True)) / sum(weights)
    return z


def loop_clipping(x: Array, f: int) -> Array:
    v = np.zeros(x.shape[1])
    for _ in range(3):
        away = [math.dist(own, v) for own in x]
        radius = float(np.median(away))
        off = [(own - v) * min(1.0, radius / d) for own, d in zip(x, away, strict=True)]
        v = v + sum(off) / len(x)
    return v


def loop_bound(x: Array, f: int) -> Array:
    norms = [math.hypot(*own) for own in x]
    bound = float(np.median(norms))
    return np.mean([own * min(1.0, bound / n) for own, n in zip(x, norms, strict=True)], 0)


TWINS: dict[str, Callable[[Array, int], Array]] = {
    # examples: the rules that papers define
    "coordinate_median": loop_median,
    "trimmed_mean": loop_trimmed,
    "krum": loop_krum,
    "multi_krum": loop_multi_krum,
    "geometric_median": loop_geometric,
    "centred_clipping": loop_clipping,
    "norm_bound": loop_bound,
}


@pytest.mark.twin
@pytest.mark.parametrize("n", [7, 8])
@pytest.mark.parametrize("name", TWINS)
def test_a_rule_is_its_looped_twin(name: str, n: int) -> None:
    """In each of three trials, with a corrupted input, and with two inputs that did not arrive."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n, 5)) + 2.0
    x[:, 0] *= 30.0
    there = np.ones((3, n), bool)
    there[1, 2:4] = False
    inputs = build_inputs(x, SHARES[n], there)
    expected = []
    for own, here in zip(x, there, strict=True):
        expected.append(TWINS[name](own[here], int(SHARES[n] * here.sum() + 1e-9)))
    np.testing.assert_allclose(apply(make(name), inputs), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ROBUST)
def test_inputs_that_were_not_delivered_do_not_count(name: str) -> None:
    """Seven inputs of ten, in any place, give what they give alone; identical ones are returned;
    a trial without any gives zeros."""
    x = np.random.default_rng(3).standard_normal((1, 7, 4)) + 5.0
    there = np.zeros((1, 10), bool)
    there[0, [0, 2, 3, 5, 6, 7, 9]] = True
    spread = np.zeros((1, 10, 4))
    spread[there] = x[0]
    alone = apply(make(name), build_inputs(x))
    np.testing.assert_allclose(apply(make(name), build_inputs(spread, 0.2, there)), alone, 1e-9)
    same = apply(make(name), build_inputs(np.repeat(x[:, :1], 9, 1)))
    np.testing.assert_allclose(same, x[:, 0], rtol=1e-12)
    assert not apply(make(name), build_inputs(spread, 0.2, there & False)).any()


@pytest.mark.parametrize("name", ROBUST)
def test_the_error_is_bounded_below_the_breakdown_share_and_not_above(name: str) -> None:
    """Three of eleven inputs are corrupted, then six, all in one place at the attack's scale."""
    share, scale = 0.3, 1e4
    x = np.random.default_rng(9).standard_normal((1, 11, 4))
    few, many = x.copy(), x.copy()
    few[:, :3], many[:, :6] = scale, scale
    rule = make(name)
    honest = np.linalg.norm(x[0], axis=1).max()
    assert np.linalg.norm(apply(rule, build_inputs(few, share))) < 3.0 * honest
    assert np.linalg.norm(apply(rule, build_inputs(many, share))) > 0.05 * scale


def test_centred_clipping_starts_from_the_last_aggregate() -> None:
    rule, rng = make("centred_clipping", steps=1, radius=0.5), np.random.default_rng(10)
    memory = rule.init(torch.zeros(1, 3, dtype=torch.float64))
    v = np.zeros(3)
    for _ in range(4):
        x = rng.standard_normal((1, 5, 3)) + 3.0
        off = x[0] - v
        norms = np.linalg.norm(off, axis=1, keepdims=True)
        v = v + (off * np.minimum(1.0, 0.5 / norms)).mean(0)
        out, memory = rule.aggregate(build_inputs(x), memory)
        np.testing.assert_allclose(out[0].numpy(), v, rtol=1e-12)
