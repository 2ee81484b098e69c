"""FedHM's facts: truncation, prefixes, Frobenius decay, weights, sizes, and the masked loss.

Mutations that must fail: ranks rounded up or 0, factors not balanced, a NaN trial ending the SVD,
singular vectors made of rounding, the overlap M of coordinates not halved, the old factors in the
place of the new ones, a sum of products without weights, the penalty not halved or of the factors'
norms, the other unrolling, a dense prefix ignored, weights of the other rule, of the wrong sign, or
the same for all levels.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.fedhm_bench import cohort_of, method, perceptron
from torch import Tensor

from otafl.algorithms.fedhm_layers import frobenius
from otafl.algorithms.level_training import gradients
from otafl.core.contracts import Batch
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors
from otafl.models.config_network import ResNet18Config, ResNet34Config
from otafl.models.resnet import ResNet

WIDTHS = (6, 8, 7, 5)
DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=DOUBLE, generator=generator)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def test_truncation_is_the_best_and_repeats_itself() -> None:
    """F2, F5: the tail's energy is lost, factors of smaller rank are a prefix, and a product
    factored again gives the same factors up to signs."""
    matrix = normal(3, 9, 7)
    s = torch.linalg.svdvals(matrix)
    wide = truncation.spectral(matrix, 6)
    for rank in (1, 3, 6):
        narrow = truncation.spectral(matrix, rank)
        close(narrow.product, wide.first(rank).product)
        for a, b in zip(narrow, wide.first(rank), strict=True):
            close(a.abs(), b.abs())
        lost = (matrix - narrow.product).square().sum((1, 2))
        torch.testing.assert_close(lost, s[:, rank:].square().sum(1), rtol=1e-10, atol=0)
        close(truncation.spectral(narrow.product, rank).product, narrow.product)
        close(narrow.left.mT @ narrow.left, narrow.right @ narrow.right.mT)  # balanced
    close(truncation.singular_values(wide), s[:, :6])


def test_eq_18_distance_of_padded_factors() -> None:
    """F7: the squared distance of zero-padded factors from their mean is twice that of the roots
    of their singular values."""
    wide = truncation.spectral(normal(1, 9, 7), 7)
    root, ranks = truncation.singular_values(wide)[0].sqrt(), (7, 4, 2)
    padded = [torch.cat([wide.left[0], wide.right[0].mT]) * (torch.arange(7) < r) for r in ranks]
    mean = sum(padded) / 3
    roots = [root * (torch.arange(7) < r) for r in ranks]
    for own, mine in zip(padded, roots, strict=True):
        expected = 2 * (sum(roots) / 3 - mine).square().sum()
        close((mean - own).square().sum(), expected)


def test_products_do_not_superpose() -> None:
    """F8: four clients of rank 3 have a mean of rank 7, the smaller side of 9 x 7."""
    left, right = normal(4, 9, 3), normal(4, 3, 7, seed=1)
    mean = truncation.sum_of_products(
        Factors(left, right), torch.full((4,), 0.25, dtype=DOUBLE), torch.zeros(4).long(), 1
    )[0]
    apart = mean - left.mean(0) @ right.mean(0)
    close(apart, sum(left[p] @ (right[p] - right.mean(0)) for p in range(4)) / 4)
    assert int(torch.linalg.matrix_rank(mean)) == 7


def test_coordinates_are_the_tangent_projection() -> None:
    """Of a change of any kind, idempotent, self-adjoint by its size, and of smaller rank in the
    first coordinates; the pair is the shortest."""
    wide = truncation.spectral(normal(2, 9, 7), 5)
    frame = truncation.vectors(wide)
    close(frame.left.mT @ frame.left, torch.eye(5, dtype=DOUBLE).expand(2, -1, -1))
    change = normal(2, 9, 7, seed=1)
    pair = truncation.coordinates_of_matrix(frame, change)
    projected = truncation.along(frame, pair)
    u, v = frame.left @ frame.left.mT, frame.right.mT @ frame.right
    close(projected, u @ change + change @ v - u @ change @ v)
    again = truncation.coordinates_of_matrix(frame, projected)
    close(again.left, pair.left)
    close(again.right, pair.right)
    close(frame.left.mT @ pair.left, pair.right @ frame.right.mT)  # the overlap is shared evenly
    old = wide.first(3)
    new = Factors(old.left + normal(2, 9, 3, seed=2), old.right + normal(2, 3, 7, seed=3))
    thin = truncation.coordinates_of_factors(truncation.vectors(old), old, new)
    whole = truncation.coordinates_of_matrix(truncation.vectors(old), new.product - old.product)
    close(thin.left, whole.left)
    close(thin.right, whole.right)
    padded = Factors(
        torch.nn.functional.pad(thin.left, (0, 2)),
        torch.nn.functional.pad(thin.right.mT, (0, 2)).mT,
    )
    close(truncation.along(frame, padded), truncation.along(truncation.vectors(old), thin))


def test_the_tangent_loses_second_order_only() -> None:
    """Halving the factors' step quarters what is lost of the change."""
    old = truncation.spectral(normal(1, 30, 20), 4)
    step = Factors(normal(1, 30, 4, seed=1), normal(1, 4, 20, seed=2))
    frame = truncation.vectors(old)
    lost = []
    for size in (1e-2, 5e-3):
        new = Factors(old.left + size * step.left, old.right + size * step.right)
        change = new.product - old.product
        own = truncation.along(frame, truncation.coordinates_of_factors(frame, old, new))
        bare = size**2 * (step.left @ step.right)
        assert (change - own).norm() < bare.norm()  # less than without the second order
        lost.append(float((change - own).norm()))
    assert lost[0] / lost[1] == pytest.approx(4.0, rel=1e-6)


def test_directions_without_a_singular_value_are_no_part_of_the_frame() -> None:
    matrix = normal(1, 9, 2) @ normal(1, 2, 7, seed=1)
    frame = truncation.vectors(truncation.spectral(matrix, 4))
    assert not frame.left[:, :, 2:].any()
    assert not frame.right[:, 2:].any()
    change = normal(1, 9, 7, seed=2)
    pair = truncation.coordinates_of_matrix(frame, change)
    first = truncation.vectors(truncation.spectral(matrix, 2))
    expected = truncation.along(first, truncation.coordinates_of_matrix(first, change))
    close(truncation.along(frame, pair), expected)


def test_a_diverged_trial_does_not_end_the_others() -> None:
    matrix = normal(2, 5, 4)
    both = torch.stack([matrix[0], matrix[1] * torch.nan])
    close(truncation.spectral(both, 2).product[0], truncation.spectral(matrix, 2).product[0])
    assert truncation.spectral(both, 2).product[1].isnan().all()


def test_frobenius_decay() -> None:
    """F6: lambda/2 |U V^T|^2, and its gradients."""
    u, v = normal(2, 9, 3).requires_grad_(), normal(2, 3, 7, seed=1).requires_grad_()
    decay = torch.tensor([0.3, 2.0], dtype=DOUBLE)
    value = frobenius([("u", "v")], decay)({"u": u, "v": v})
    close(value, 0.5 * decay * (u @ v).square().sum((1, 2)), 1e-11)
    by_u, by_v = torch.autograd.grad(value.sum(), [u, v])
    close(by_u, decay[:, None, None] * u @ v @ v.mT, 1e-11)
    close(by_v, decay[:, None, None] * u.mT @ u @ v, 1e-11)


def test_weights_as_printed() -> None:
    """F10, one device at each level."""
    cohort = cohort_of([[0, 1, 2, 3]])
    paper = [0.277392, 0.250995, 0.238754, 0.232859]
    code = [0.382535, 0.313193, 0.209940, 0.094332]
    for rule, expected in (("paper", paper), ("inverse", code)):
        ours = method(perceptron(WIDTHS), temperature=5.0, weight_rule=rule)
        weighed = replace(cohort, weight=ours.row_weights(cohort))
        close(weighed.unit_weight, torch.tensor(expected, dtype=DOUBLE), 5e-7)
    ours = method(perceptron(WIDTHS))
    assert ours.row_weights(cohort).tolist() == [1.0] * 4


def test_masked_loss_by_hand() -> None:
    """F11: scores (1, 2, 3), the third class absent: as if its score were 0."""
    model = perceptron((1, 3))
    bias = torch.tensor([[1.0, 2.0, 3.0]], dtype=DOUBLE)
    params = {"classifier.weight": bias.new_zeros(1, 1, 3), "classifier.bias": bias}
    batch = Batch(bias.new_zeros(1, 1, 1), torch.zeros(1, 1).long(), None)
    loss, grads = gradients(model, params, batch, torch.tensor([[True, True, False]]))
    assert float(loss) == pytest.approx(1.407606, abs=5e-7)
    assert float(grads["classifier.bias"][0, 2]) == 0.0
    assert float(gradients(model, params, batch, None)[0]) == pytest.approx(2.407606, abs=5e-7)


@pytest.mark.parametrize("unroll", ["vertical_first", "horizontal_first"])
def test_sizes_of_resnets(unroll: str) -> None:
    """The paper's Tables 2 and 3: 11.17, 4.16, 2.21, 1.24 M and 21.33, 8.40, 4.99, 3.28 M."""
    small = ResNet(ResNet18Config(), (3, 32, 32), 10)
    ours = method(small, unroll=unroll, dense_prefix=3)
    assert {one.unroll for one in [*ours.networks, *ours._layers.values()]} == {unroll}
    assert [one.parameters for one in ours.levels()] == [11173962, 4157514, 2209866, 1236042]
    macs = [555422720, 259724288, 171643904, 127603712]
    assert [one.macs for one in ours.levels()] == macs
    large = ResNet(ResNet34Config(), (3, 32, 32), 100)
    ours = method(large, unroll=unroll, dense_prefix=15)
    assert [one.parameters for one in ours.levels()] == [21328292, 8401316, 4985252, 3277220]
    reals = ours._down  # what one copy of the dense model has
    assert sum(math.prod(shape) for shape in reals.values()) == 21328292


def test_energy_lost_by_truncating_a_random_resnet18() -> None:
    """F13, as torch.nn.Conv2d starts: .494, .706, .839. On layers of stages 1 to 3 alone, as the
    SVDs of the fourth take long: within .02."""
    ours = method(ResNet(ResNet18Config(), (3, 32, 32), 10), dense_prefix=3)
    lost, whole = torch.zeros(3), 0.0
    for i, layer in enumerate(ours._layers.values()):
        if layer.outputs > 256 or (layer.outputs == 256 and i % 2):
            continue
        weight = torch.rand(1, *layer.shape, generator=torch.Generator().manual_seed(i)) - 0.5
        weight /= math.sqrt(layer.shape[1])
        s = torch.linalg.svdvals(layer.matrix(weight))[0].square()
        whole += float(s.sum())
        for level, ratio in enumerate((0.5, 0.25, 0.125)):
            lost[level] += s[layer.rank(ratio) :].sum()
    torch.testing.assert_close(lost / whole, torch.tensor([0.494, 0.706, 0.839]), rtol=0, atol=0.02)


def test_ranks() -> None:
    assert truncation.rank_of(0.01, 8, (24, 24)) == 1
    assert truncation.rank_of(0.3, 8, (24, 24)) == 2
    assert truncation.rank_of(0.9, 64, (192, 27)) == 27
