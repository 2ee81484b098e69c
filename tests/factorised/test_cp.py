"""CP algebra, against definitions and autograd."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from support.cp_bench import (
    BOTH,
    KERNEL,
    compute_relative_error,
    draw_factors,
    draw_normal,
    perturb,
    unfold,
)
from support.rounding import assert_agree

from otafl.factorised import cp

pytestmark = pytest.mark.exact


@BOTH
def test_kruskal_by_its_definition(modes: tuple[int, ...], rank: int) -> None:
    a = draw_factors(1, modes, rank)
    letters = "abcd"[: len(modes)]
    terms = ",".join(f"nr{i}" for i in letters)
    whole = torch.einsum(f"{terms}->n{letters}", *a)
    torch.testing.assert_close(cp.kruskal(a).view(2, *modes), whole)
    assert cp.kruskal(a).shape == (2, math.prod(modes[:-1]), modes[-1])
    assert compute_relative_error(cp.gram(a).sum((1, 2)), whole.flatten(1).square().sum(1)) < 1e-12


def test_khatri_rao_is_a_kronecker_product_of_columns() -> None:
    u, w = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 5.0, 7.0]]])
    assert cp.khatri_rao([u, w]).tolist() == [[[3, 5, 7, 6, 10, 14]]]


@BOTH
def test_gradients_are_autograds_and_the_papers(modes: tuple[int, ...], rank: int) -> None:
    """Facts F3, F4: (25), by autograd, by the residual and by Gram matrices; (17) as printed is
    something else."""
    a = draw_factors(2, modes, rank)
    target = draw_normal(5, 2, math.prod(modes[:-1]), modes[-1])
    leaves = [f.clone().requires_grad_() for f in a]
    ((target - cp.kruskal(leaves)).square().sum() / 2).backward()
    memory = torch.empty_like(target)
    ours = cp.compute_factor_gradients(target, a, out=memory)
    products = [
        (unfold(target, modes, mode) @ cp.khatri_rao(a[:mode] + a[mode + 1 :]).mT).mT
        for mode in range(len(modes))
    ]
    for mode, (grad, leaf) in enumerate(zip(ours, leaves, strict=True)):
        assert leaf.grad is not None
        assert compute_relative_error(grad, leaf.grad) < 1e-12
        v = cp.gram(a, (mode,))
        assert (
            compute_relative_error(torch.bmm(v, a[mode]) - products[mode], leaf.grad) < 1e-12
        )  # eq. (25)
        assert (
            compute_relative_error(torch.bmm(v, a[mode]) + products[mode], leaf.grad) > 0.1
        )  # eq. (17)


def test_ranks_of_table_1() -> None:
    """Facts F15, F16: all 20 ranks, and the rates of the networks."""
    dnn: list[tuple[int, ...]] = [(784, 100), (100, 10)]
    vgg: list[tuple[int, ...]] = [(3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 128)]
    vgg += [(3, 3, 128, 256), (3, 3, 256, 256), (256, 256), (256, 256), (256, 10)]
    table = {
        (1.5, "dnn"): (dnn, [59, 6], 1.5033),
        (2.0, "dnn"): (dnn, [44, 5], 2.0129),
        (1.5, "vgg"): (vgg, [14, 120, 248, 504, 759, 85, 85, 6], 1.5013),
        (2.0, "vgg"): (vgg, [11, 90, 186, 378, 569, 64, 64, 5], 2.0008),
    }
    for (rate, _), (layers, ranks, whole) in table.items():
        assert [cp.compute_rank(modes, rate) for modes in layers] == ranks
        dense = sum(math.prod(modes) for modes in layers)
        thin = sum(cp.count_coordinates(modes, r) for modes, r in zip(layers, ranks, strict=True))
        assert dense / thin == pytest.approx(whole, abs=5e-5)
    assert cp.compute_rank((2, 2), 100.0) == 1
    assert cp.largest_rank((784, 100)) == 100
    assert cp.largest_rank((3, 3, 3, 32)) == 27


@pytest.mark.parametrize(
    ("modes", "rank", "fan_in", "tolerance"),
    [((784, 100), 44, 784, 0.05), ((3, 3, 128, 256), 378, 1152, 0.1)],
)
def test_start_has_hes_variance(
    modes: tuple[int, ...], rank: int, fan_in: int, tolerance: float
) -> None:
    """Fact F10, and He's deviations of the DNN at x2."""
    deviation = cp.start_deviation(fan_in, rank, len(modes))
    a = [deviation * f for f in draw_factors(4, modes, rank, n=5)]
    assert float(cp.kruskal(a).var()) == pytest.approx(2 / fan_in, rel=tolerance)
    assert cp.start_deviation(784, 44, 2) == pytest.approx(0.0873, abs=5e-5)
    assert cp.start_deviation(100, 5, 2) == pytest.approx(0.2515, abs=5e-5)


def test_als_recovers_a_rank_and_never_gets_worse() -> None:
    """Fact F8, each row by itself: the first is exact, the second has a tail."""
    true = draw_factors(5, KERNEL, 4)
    target = cp.kruskal(true)
    target[1] += 0.3 * draw_normal(9, *target[1].shape)
    start = perturb(true, 1, 0.1)
    errors = []
    for sweeps in (0, 1, 2, 5, 20, 300):
        found, error = cp.run_als(target, start, sweeps=sweeps, change=0.0)
        actual = (cp.kruskal(found) - target).flatten(1).norm(dim=1)
        torch.testing.assert_close(error, actual / target.flatten(1).norm(dim=1))
        errors.append(error)
    assert all((b <= a).all() for a, b in itertools.pairwise(errors))
    assert errors[-1][0] < 1e-8
    assert 0.05 < errors[-1][1] < errors[0][1]
    alone, error = cp.run_als(target[:1], [f[:1] for f in start])
    both, _ = cp.run_als(target, start)
    assert_agree(alone, [b[:1] for b in both])
    assert error < 1e-4
