"""Parts of FedAMP, FedFomo and FedPAC by hand, in their limits, and by other means.

Mutations that must fail: attention with the distance in place of its square, or scaled by K - 1; a
Gram matrix of models far from zero in single precision, not centred; self_weight ignored; a device
forwarded its own model, or one twice; the least liked in the place of the most; exploring when
explore is 0; validation samples in training minibatches, or all of them at one end; V not the
variance of an estimate; the program over absent coordinates, or stopped after a few iterations;
layers before the last one not asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor
from twins import exchange as twin
from support.exchange_bench import SIZES, WHO, WIDTHS, Bench, K, close, cohort_of, prefixed, vector
from twins.setting import minibatch, mlp

from otafl.algorithms import local_samples
from otafl.algorithms.config_exchange import FedAMPConfig, FedFomoConfig, FedPACConfig
from otafl.algorithms.fedamp import FedAMP, cosine_weights, kernel_weights
from otafl.algorithms.fedfomo import FedFomo, HeldOut
from otafl.algorithms.fedpac import FedPAC, mixing, statistics
from otafl.algorithms.simplex_qp import minimisers
from otafl.core.contracts import Batch
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.config import SoftmaxRegressionConfig
from otafl.models.softmax_regression import SoftmaxRegression

ONE = torch.ones(1, dtype=torch.float64)
AMP = {
    "learning_rate": [0.1, 0.05],
    "penalty": [2.0, 5.0],
    "sigma": [0.5, 2.0],
    "attention": [0.0, 0.0],
    "cosine_scale": [2.0, 5.0],
    "self_weight": [1.0, 1.0],
}


def test_attention_by_hand() -> None:
    """Models 0, 1 and 3 on a line; sigma = 2, alpha_k = 0.6 sigma / 3: xi_ij = 0.2 exp(-d^2/2)."""
    models = torch.tensor([[[0.0], [1.0], [3.0]]], dtype=torch.float64)
    near, far, farthest = (0.2 * math.exp(-d * d / 2) for d in (1, 2, 3))
    expected = [[0, near, farthest], [near, 0, far], [farthest, far, 0]]
    weights = kernel_weights(models, 2 * ONE, 0.6 * ONE)
    torch.testing.assert_close(weights[0], torch.tensor(expected, dtype=torch.float64))
    far_off = kernel_weights((models + 5000.0).float(), 2 * ONE.float(), 0.6 * ONE.float())
    torch.testing.assert_close(far_off.double(), weights, rtol=1e-5, atol=1e-7)


def test_mixture_is_a_gradient_step_on_the_attention() -> None:
    """u_i = w_i - alpha_k d/dw_i of sum_{j<k} A(|w_j - w_k|^2) / 2, A(x) = 1 - exp(-x / sigma)."""
    generator = torch.Generator().manual_seed(1)
    models = torch.randn(1, 4, 7, generator=generator, dtype=torch.float64)
    leaf = models.clone().requires_grad_()
    square = (leaf[:, :, None] - leaf[:, None]).square().sum(3)
    total = (1.0 - torch.exp(-square / 3.0)).sum() / 2  # each pair is in it twice
    (grad,) = torch.autograd.grad(total / 2, leaf)
    weights = kernel_weights(models, 3 * ONE, ONE)
    mixed = torch.bmm(weights + torch.diag_embed(1.0 - weights.sum(2)), models)
    torch.testing.assert_close(mixed, models - (3.0 / 4) * grad, rtol=0, atol=1e-13)


def test_cosine_by_hand() -> None:
    """Vectors at 0, 60 and 90 degrees; all of them scaled, which must not matter."""
    models = torch.tensor([[[2.0, 0.0], [0.5, math.sqrt(0.75)], [0.0, 5.0]]], dtype=torch.float64)
    weights = cosine_weights(models, 2 * ONE, 0.4 * ONE)[0]
    first = 0.6 * math.exp(1.0) / (math.exp(1.0) + math.exp(0.0))
    torch.testing.assert_close(
        weights[0], torch.tensor([0.0, first, 0.6 - first], dtype=torch.float64)
    )
    torch.testing.assert_close(weights.sum(1), 0.6 * torch.ones(3, dtype=torch.float64))


def test_equal_models_get_equal_weights() -> None:
    """attention: 1 is the largest of which no weight is negative, and equal models are averaged."""
    models = torch.ones(1, 5, 3, dtype=torch.float64)
    weights = kernel_weights(models, ONE, ONE)
    own = 1.0 - weights.sum(2)
    torch.testing.assert_close(own, torch.full_like(own, 0.2))


@pytest.mark.parametrize("weights", ["kernel", "cosine"])
def test_without_attention_a_device_is_drawn_to_its_own_model(weights: Any) -> None:
    bench = Bench(FedAMP, FedAMPConfig(weights=weights, prox_steps=2), mlp(WIDTHS), AMP)
    for t, who in enumerate(WHO):
        cohort = cohort_of(who)
        before = [prefixed(bench, "personal", 0, k) for k in who[0]]
        batches = bench.batches(cohort, t)
        bench.local(cohort, t)
        bench.combine(cohort, t, None)
        torch.testing.assert_close(bench.server["cloud"], bench.server["models"])
        for row, k in enumerate(who[0]):
            old = before[row]
            own, _ = twin.fedamp_device(old, old, WIDTHS, batches[row], 0.1, 2.0, 2)
            close(prefixed(bench, "personal", 0, k), own)


def test_fedfomo_alone_is_local_training() -> None:
    """M = 0 and the trained model as baseline: SGD on the training part."""
    hyper = {"learning_rate": [0.3, 0.1], "explore": [0.3, 0.5], "explore_decay": [0.1, 0.0]}
    config = FedFomoConfig(models=0, baseline="current")
    bench = Bench(FedFomo, config, mlp(WIDTHS), hyper)
    model = prefixed(bench, "personal", 0, 0)
    for t in range(2):
        cohort = cohort_of(WHO[0])
        held = HeldOut(bench.work(cohort, t).full(), 0.2, 4)
        batches = []
        for step in range(2):
            tick = (t << 32) + step
            uniform = bench.streams.device_uniform(
                "fedfomo/minibatch", tick, cohort.trial, cohort.device, (4,)
            )
            batches.append(minibatch(held.minibatch(uniform), 0))
        bench.local(cohort, t)
        assert len(bench.sent) == 1  # nothing to report
        bench.combine(cohort, t, None)
        model, _ = twin.sgd(model, WIDTHS, batches, 0.3)
        close(prefixed(bench, "personal", 0, 0), model)


def fomo(explore: float, decay: float = 0.0) -> tuple[FedFomo, dict[str, Tensor], Streams]:
    config = FedFomoConfig(models=3)
    streams = Streams([1], [0], dtype=torch.float64)
    hyper = {"explore": explore * ONE, "explore_decay": decay * ONE}
    return FedFomo(config, mlp(WIDTHS), 8), hyper, streams


def test_offers_follow_the_affinity() -> None:
    generator = torch.Generator().manual_seed(2)
    affinity = torch.randn(1, 8, 8, generator=generator, dtype=torch.float64)
    method, hyper, streams = fomo(0.0)
    offer = method.offer(affinity, 4, hyper, streams)[0]
    without = affinity[0].masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    for k in range(8):
        assert set(offer[k].tolist()) == set(without[k].topk(3).indices.tolist())
    method, hyper, streams = fomo(0.5, decay=0.1)
    assert torch.equal(method.offer(affinity, 5, hyper, streams)[0].sort(1)[0], offer.sort(1)[0])


def test_exploring_is_uniform_and_ties_are_broken_at_random() -> None:
    """Over 400 rounds each of the 7 others is forwarded 3 times in 7, to within 5 standard
    deviations; with explore = 0 and no affinity too. With explore = 0.5 the best known one comes
    more often: unless all three are explored it is there, else 3 times in 7."""
    best = torch.zeros(1, 8, 8, dtype=torch.float64)
    for explore, affinity, first in ((1.0, best + torch.arange(8.0), 3 / 7), (0.0, best, 3 / 7)):
        method, hyper, streams = fomo(explore)
        offers = torch.stack([method.offer(affinity, t, hyper, streams)[0] for t in range(400)])
        assert all(len(set(row.tolist()) | {k}) == 4 for k, row in enumerate(offers[7]))
        count = torch.zeros(8, 8).index_put_(
            (torch.arange(8)[None, :, None].expand_as(offers), offers), torch.ones(()), True
        )
        others = count[~torch.eye(8, dtype=torch.bool)]
        assert float(count.diagonal().sum()) == 0
        spread = math.sqrt(400 * first * (1 - first))
        assert float((others - 400 * first).abs().max()) < 5 * spread
    method, hyper, streams = fomo(0.5)
    affinity = best.clone()
    affinity[0, 0, 5] = 1.0
    there = [5 in method.offer(affinity, t, hyper, streams)[0, 0] for t in range(400)]
    chance = 1 - 0.125 + 0.125 * 3 / 7
    assert abs(np.mean(there) - chance) < 5 * math.sqrt(chance * (1 - chance) / 400)


@pytest.mark.parametrize("share", [0.2, 0.25, 0.5])
def test_validation_samples_are_spread_and_kept_out_of_training(share: float) -> None:
    """Devices of 20, 3 and 11 samples; a sample's input is its number."""
    sizes = torch.tensor([20, 3, 11])
    number = torch.arange(20).repeat(3, 1)
    weight = (number < sizes[:, None]).double() / sizes[:, None]
    full = Batch(number[:, :, None].double(), number % 4, weight)
    held = HeldOut(full, share, 6)
    generator = torch.Generator().manual_seed(3)
    drawn: list[set[float]] = [set() for _ in sizes]
    for _ in range(60):
        batch = held.minibatch(torch.rand(3, 6, generator=generator))
        assert batch.weight is not None
        torch.testing.assert_close(batch.weight.sum(1), torch.ones(3, dtype=torch.float64))
        for k in range(3):
            values = batch.x[k, batch.weight[k] > 0, 0].tolist()
            assert len(set(values)) == len(values) == min(6, sizes[k] - int(share * sizes[k]))
            drawn[k] |= set(values)
    own = held.validation
    assert own.weight is not None
    for k, size in enumerate(sizes.tolist()):
        kept = own.x[k, own.weight[k] > 0, 0].tolist()
        assert len(kept) == int(share * size)
        assert kept == [place - 1 for place in range(1, size + 1) if place % round(1 / share) == 0]
        assert drawn[k] | set(kept) == set(range(size))
        assert not drawn[k] & set(kept)


def test_programs_against_scipy() -> None:
    generator = np.random.default_rng(4)
    for size in (2, 5, 12):
        factor = generator.standard_normal((6, size, 3))
        q = factor @ factor.transpose(0, 2, 1)
        q += np.eye(size) * generator.uniform(1e-3, 0.5, (6, size, 1))
        present = generator.random((6, size)) < 0.8
        present[:, 0] = True
        ours = minimisers(torch.from_numpy(q), torch.from_numpy(present)).numpy()
        assert (ours >= 0).all()
        assert (ours[~present] == 0).all()
        np.testing.assert_allclose(ours.sum(1), 1.0, rtol=1e-12)
        for x, one, there in zip(ours, q, present, strict=True):
            inside = one[np.ix_(there, there)]
            found = scipy.optimize.minimize(
                lambda v, m=inside: v @ m @ v,
                np.full(there.sum(), 1 / there.sum()),
                jac=lambda v, m=inside: 2 * m @ v,
                bounds=[(0, 1)] * int(there.sum()),
                constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            assert x @ one @ x <= found.fun * (1 + 1e-9)
            np.testing.assert_allclose(x[there], found.x, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e8])
@pytest.mark.parametrize("size", [1, 3, 40, 100])
def test_optimality_gap(size: int, scale: float) -> None:
    """The optimum is at least f(x) - (g.x - min g), g the gradient at x; what the gap may be beside
    1e-9 of f is the rounding of g. Variances from 1e-6 to 1, a part of rank 6."""
    generator = torch.Generator().manual_seed(size)
    h = torch.randn(8, size, 6, generator=generator, dtype=torch.float64)
    q = h @ h.mT + torch.diag_embed(
        10.0 ** (-6 * torch.rand(8, size, generator=generator, dtype=torch.float64))
    )
    q = q * scale
    x = minimisers(q, torch.ones(8, size, dtype=torch.bool))
    gradient = 2 * (q @ x[:, :, None])[:, :, 0]
    value = (gradient * x).sum(1) / 2
    gap = (gradient * x).sum(1) - gradient.amin(1)
    rounding = 1e-15 * q.diagonal(dim1=1, dim2=2).amax(1)
    assert (gap <= 1e-9 * value + rounding).all()


def test_mixing_in_its_limits() -> None:
    """Alike devices share heads in inverse proportion to their variances; one that is far from all
    keeps its own; a device alone as well; absent ones have no share."""
    moment = torch.ones(1, 4, 2, 3, dtype=torch.float64)
    variance = torch.tensor([[0.1, 0.2, 0.4, 0.1]], dtype=torch.float64)
    everyone = torch.ones(1, 4)
    shares = (1 / variance[0]) / (1 / variance[0]).sum()
    weights = mixing(moment, variance, everyone)[0]
    torch.testing.assert_close(weights, shares.expand(4, 4), rtol=1e-7, atol=1e-9)
    moment[0, 2] += 1000.0
    weights = mixing(moment, variance, everyone)[0]
    torch.testing.assert_close(weights[2], torch.eye(4).double()[2], rtol=0, atol=1e-6)
    assert float(weights[0, 2]) < 1e-6
    some = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    expected = torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(mixing(moment, variance, some)[0, 3], expected, atol=1e-9, rtol=0)
    one = mixing(moment[:, :1], variance[:, :1], everyone[:, :1])
    assert torch.equal(one, torch.ones(1, 1, 1, dtype=torch.float64))
    nobody = mixing(moment, variance, torch.zeros(1, 4))
    assert nobody.isfinite().all()


def test_statistics_by_hand() -> None:
    """Features (1, 0), (3, 0) of class 0 and (0, 2) of class 1, and a padding that must not count:
    h = ((4/3, 0), (0, 2/3)), mean |f|^2 = 14/3, V = (14/3 - 16/9 - 4/9) / 3 = 22/27."""
    method = FedPAC(FedPACConfig(), mlp((2, 2, 2)), 3)
    x = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]).double()
    y = torch.tensor([[0, 0, 1, 1]])
    full = Batch(x, y, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]]).double())
    passed = {"weight0": torch.eye(2).double()[None], "bias0": torch.zeros(1, 2).double()}
    total, square = method.sums(passed, full)
    assert total.tolist() == [[[4.0, 0.0], [0.0, 2.0]]]
    moment, variance = statistics(total, square, torch.tensor([[2, 1]]))
    expected = torch.tensor([[4 / 3, 0.0], [0.0, 2 / 3]]).double()
    torch.testing.assert_close(moment[0], expected)
    torch.testing.assert_close(variance, torch.tensor([22 / 27]).double())


def test_pieces_are_all_samples_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of 7, 2 and 4 samples, two at a time; a sample's input is its number."""
    monkeypatch.setattr(local_samples, "WIDTH", 2)
    sizes = torch.tensor([7, 2, 4])
    number = torch.arange(7).repeat(3, 1)
    weight = (number < sizes[:, None]).double() / sizes[:, None]
    for full, expected in (
        (Batch(number[:, :, None].double(), number, weight), sizes * (sizes - 1) / 2),
        (Batch(number[:, :, None].double(), number, None), torch.full((3,), 21.0)),
    ):
        total, shares, most = torch.zeros(3).double(), torch.zeros(3).double(), []
        for rows, piece in local_samples.pieces(full):
            assert piece.weight is not None
            local_samples.add_(total, rows, (piece.x[:, :, 0] * local_samples.held(piece)).sum(1))
            local_samples.add_(shares, rows, piece.weight.sum(1))
            most.append(len(piece.y))
        assert total.tolist() == expected.tolist()
        torch.testing.assert_close(shares, torch.ones(3).double())
        assert most == ([3, 2, 1, 1] if full.weight is not None else [3, 3, 3, 3])


def test_fedpac_alone_keeps_its_head() -> None:
    """One device in each trial takes part, no pull: its head is what it trained, its extractor the
    server's."""
    hyper = {
        "learning_rate": [0.2, 0.1],
        "server_learning_rate": [1.0, 1.0],
        "personal_learning_rate": [0.3, 0.1],
        "penalty": [0.0, 0.0],
    }
    bench = Bench(FedPAC, FedPACConfig(), mlp(WIDTHS), hyper)
    before = bench.server["head"].clone()
    cohort = cohort_of(([3], [1]))
    bench.local(cohort, 0)
    bench.combine(cohort, 0, None)
    personal = {name: bench.state(f"personal.{name}") for name in bench.model.shapes}
    body, head = twin.split(vector(personal, bench.model, 0, 3), WIDTHS)
    close(bench.server["head"][0, 3], head)
    close(bench.server["model"][0], body)
    others = [k for k in range(K) if k != 3]
    assert torch.equal(bench.server["head"][0, others], before[0, others])
    assert sum(SIZES[0][k] for k in others) > 0


def test_centroids_of_classes_that_nobody_has() -> None:
    """Unknown until somebody tells one, and kept in a round in which nobody has the class."""
    settings = ("learning_rate", "server_learning_rate", "personal_learning_rate", "penalty")
    hyper = {name: [0.1, 0.1] for name in settings}
    bench = Bench(FedPAC, FedPACConfig(), mlp(WIDTHS), hyper)
    cohort = cohort_of(WHO[0])
    for t, (missing, known) in enumerate([(2, [1.0, 1.0, 0.0]), (0, [1.0, 1.0, 1.0])]):
        before = bench.server["centroid"]
        bench.local(cohort, t)
        bench.sent[1].blocks["count"][:, missing] = 0.0
        bench.combine(cohort, t, None)
        assert bench.server["known"].tolist() == [known, known]
        assert torch.equal(bench.server["centroid"][:, missing], before[:, missing])
        assert not torch.equal(bench.server["centroid"][:, 1], before[:, 1])


def test_refuses_a_model_without_features() -> None:
    model = SoftmaxRegression(SoftmaxRegressionConfig(), (6,), 3)
    with pytest.raises(UserError, match="mlp with hidden layers or cnn would do"):
        FedPAC(FedPACConfig(), model, 5)
