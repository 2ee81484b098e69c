"""The three aggregations of CP factors, against definitions and each other."""

from __future__ import annotations

import pytest
import torch
from support.cp_bench import (
    BOTH,
    compute_derivative,
    compute_relative_error,
    draw_factors,
    perturb,
)
from torch import Tensor

from otafl.factorised import cp
from otafl.factorised import cp_aggregation as agg

pytestmark = pytest.mark.exact


@BOTH
def test_mean_tensor(modes: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    each = draw_factors(8, modes, rank, n=5)
    weight = torch.tensor([0.2, 0.8, 0.5, 0.3, 0.2], dtype=torch.float64)
    trial = torch.tensor([0, 0, 1, 1, 1])
    dense = cp.kruskal(each)
    expected = torch.stack(
        [0.2 * dense[0] + 0.8 * dense[1], 0.5 * dense[2] + 0.3 * dense[3] + 0.2 * dense[4]]
    )
    torch.testing.assert_close(agg.mean_tensor(each, weight, trial, 2), expected)
    monkeypatch.setattr(agg, "NUMBERS_AT_ONCE", 2 * dense[0].numel())
    torch.testing.assert_close(agg.mean_tensor(each, weight, trial, 2), expected)


def act(each: list[Tensor], rank: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Factors, residual and mean tensor of ACT over equal rows as one trial, beta = 1."""
    n = len(each[0])
    trial = torch.zeros(n, dtype=torch.int64)
    mean = agg.mean_tensor(each, torch.full((n,), 1 / n, dtype=torch.float64), trial, 1)
    afm = [f.mean(0, keepdim=True) for f in each]
    return *agg.find_factors(mean, (afm, [f[:1] for f in each]), rank), mean


def test_act_of_matrices_is_the_best_approximation() -> None:
    """Facts F6, F9, F17."""
    each = draw_factors(9, (20, 40), 3, n=6)
    found, residual, mean = act(each, 3)
    s = torch.linalg.svdvals(mean)
    assert int((s > 1e-10).sum()) == 18  # ranks add up
    assert float(residual) == pytest.approx(float(s[0, 3:].norm() / s.norm()), rel=1e-12)
    assert compute_relative_error(cp.kruskal(found), mean) == pytest.approx(
        float(residual), rel=1e-12
    )
    grams = [f @ f.mT for f in found]
    torch.testing.assert_close(grams[0], grams[1])  # split evenly
    means = [f.mean(0, keepdim=True) for f in each]
    apart = [f - m for f, m in zip(each, means, strict=True)]
    covariance = cp.kruskal(apart).mean(0, keepdim=True)
    assert compute_relative_error(mean - cp.kruskal(means), covariance) < 1e-12
    lossless, none, mean = act(draw_factors(9, (20, 5), 5, n=6), 5)
    assert compute_relative_error(cp.kruskal(lossless), mean) < 1e-12
    assert float(none) < 1e-12


@BOTH
def test_coordinates_are_those_of_the_projected_change(modes: tuple[int, ...], rank: int) -> None:
    """J(B) is the least-squares fit of the change in the span of all directions, found here by a
    dense solver on the Jacobian, and C the shortest vector that has it."""
    at, own = draw_factors(11, modes, rank, n=1), draw_factors(12, modes, rank, n=1)
    sent = agg.compute_coordinates(at, own)
    reached = compute_derivative(at, agg.expand_coordinates(at, sent)).flatten()
    columns, roots = [], agg.compute_whitening(at)
    for mode, (f, root) in enumerate(zip(at, roots, strict=True)):
        v = cp.gram(at, (mode,))
        torch.testing.assert_close(root @ v @ root, torch.eye(rank, dtype=v.dtype)[None])
        for place in range(f.numel()):
            unit = torch.zeros_like(f)
            unit.view(-1)[place] = 1.0
            along = [torch.zeros_like(a) for a in at]
            along[mode] = root @ unit
            columns.append(compute_derivative(at, along).flatten())
    jacobian = torch.stack(columns, 1)
    change = (cp.kruskal(own) - cp.kruskal(at)).flatten()
    tolerance = 1e-12 if len(modes) == 2 else 1e-6
    shortest = torch.linalg.pinv(jacobian, rtol=1e-6) @ change
    flat = torch.cat([c.flatten() for c in sent])
    assert compute_relative_error(reached, jacobian @ shortest) < tolerance
    assert compute_relative_error(flat, shortest) < 30 * tolerance
    assert float((change - reached).norm()) > 0.1  # a projection, and not the identity


def test_a_retracted_matrix_is_the_nearest_of_its_rank() -> None:
    """By SVD of the dense sum; its factors keep the ratio of norms. At
    full rank nothing is lost, however badly conditioned A_t is."""
    at = draw_factors(17, (9, 6), 3)
    own = perturb(at, 4, 0.2)
    sent = agg.compute_coordinates(at, own)
    target = cp.kruskal(at) + compute_derivative(at, agg.expand_coordinates(at, sent))
    u, s, vt = torch.linalg.svd(target)
    best = (u[:, :, :3] * s[:, None, :3]) @ vt[:, :3]
    new = agg.retract(at, sent)
    torch.testing.assert_close(cp.kruskal(new), best)
    norms = [[f.flatten(1).norm(dim=1) for f in pair] for pair in (at, new)]
    torch.testing.assert_close(norms[0][0] / norms[0][1], norms[1][0] / norms[1][1])
    at = draw_factors(18, (9, 6), 6)
    at[1][:, 5] = at[1][:, 4] + 1e-3 * at[1][:, 5]
    own = perturb(at, 5, 0.5)
    assert (
        compute_relative_error(
            cp.kruskal(agg.retract(at, agg.compute_coordinates(at, own))), cp.kruskal(own)
        )
        < 1e-7
    )
