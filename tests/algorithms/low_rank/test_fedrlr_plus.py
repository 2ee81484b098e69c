"""FedRLR+ against its dense looped twin, round by round; what it sends; what it refuses.

Two trials of different step sizes and momenta, four devices of unequal size (one with fewer
samples than a minibatch), three layers, two local steps, ranks below the layers' sides, at them
and with 2R above them; reception free of error and with errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import fedrlr_plus as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl import load_scenario
from otafl.algorithms.low_rank.fedrlr_plus import FedRLRPlus
from otafl.core.contracts import Cohort, Context, LocalContext, Payload, Received, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.factorised.lowrank import LowRank, to_dense
from otafl.models.module_model import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.twin

F64 = torch.float64
S, K, WIDTHS, STEPS, ROUNDS = 2, 4, (9, 7, 6, 5), 2, 3
SIZES = [[8, 11, 30, 6], [3, 20, 9, 9]]
LAYERS = range(3)
HYPER = {
    "learning_rate": [0.3, 0.1],
    "decay": [0.5, 0.0],
    "server_learning_rate": [1.0, 0.7],
    "momentum": [0.8, 0.3],
}


def parts(rank: Any = 2) -> tuple[FedRLRPlus, Streams, dict[str, Tensor], Cohort, TrainingData]:
    streams = Streams([3] * S, [0, 1], dtype=F64)
    hyper = {name: torch.tensor(value, dtype=F64) for name, value in HYPER.items()}
    size = torch.tensor(SIZES, dtype=F64)
    cohort = everyone(size / size.sum(1, keepdim=True))
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, 4, STEPS)
    model = mlp(WIDTHS, bias_start="uniform")
    return FedRLRPlus(FedRLRPlus.Settings(rank=rank), model, K), streams, hyper, cohort, data


def local(
    algorithm: FedRLRPlus, server: Tensors, cohort: Cohort, data: TrainingData, hyper: Any, t: int
) -> tuple[Payload, Tensor]:
    broadcast = algorithm.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
    context = LocalContext(cohort, hyper, Streams([0], [0]), t, data.select_cohort(t, cohort))
    state, payload, loss = algorithm.run_local_update(broadcast, {}, context)
    assert state == {}
    return payload, loss


def increment(payload: Payload, server: Tensors, trial: int, row: int, layer: int) -> np.ndarray:
    """A V^T + U B^T of a row, dense."""
    (group,) = payload
    a, b = group.tensors[f"a{layer}"][row], group.tensors[f"b{layer}"][row]
    u, v = server[f"u{layer}"][trial], server[f"v{layer}"][trial]
    return (a.T @ v.T + u @ b).numpy()


def theta(server: Tensors, trial: int) -> list[np.ndarray]:
    points = [LowRank(*(server[f"{n}{i}"][trial : trial + 1] for n in "usv")) for i in LAYERS]
    return [to_dense(point)[0].numpy() for point in points]


@pytest.mark.parametrize(("rank", "noisy"), [(2, True), ((4, 5, 3), False), ((7, 6, 5), True)])
def test_rounds_are_the_twins(rank: Any, noisy: bool) -> None:
    algorithm, streams, hyper, cohort, data = parts(rank)
    server, _ = algorithm.init(streams, hyper)
    generator = torch.Generator().manual_seed(1)
    twins = []
    for trial in range(S):
        start = algorithm.model.init(
            lambda name, shape: streams.draw_uniform(f"init/{name}", 0, shape)
        )
        weights, biases = (
            [start[getattr(layer, kind)][trial].numpy() for layer in algorithm.model.layers]
            for kind in ("weight", "bias")
        )
        twins.append(twin.start(weights, biases, list(algorithm.ranks)))
    for t in range(ROUNDS):
        payload, loss = local(algorithm, server, cohort, data, hyper, t)
        (group,) = payload
        work = data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]
        mean, errors = {}, {}
        for name, block in group.tensors.items():
            shape = (S, K, *[1] * (block.dim() - 1))
            weighted = (block.unflatten(0, (S, K)) * cohort.weight.view(shape)).sum(1)
            errors[name] = torch.randn(weighted.shape, generator=generator, dtype=F64) * noisy
            mean[name] = weighted + 0.05 * errors[name]
        for trial in range(S):
            side = twins[trial]
            step = HYPER["learning_rate"][trial] / (1 + HYPER["decay"][trial] * t)
            told = []
            for device in range(K):
                row = trial * K + device
                mine = [minibatch(batch, row) for batch in batches]
                one, expected = twin.local(side, list(algorithm.ranks), mine, step)
                told.append(one)
                assert loss[row] == pytest.approx(expected, rel=1e-9)
                for i in LAYERS:
                    ours = increment(payload, server, trial, row, i)
                    np.testing.assert_allclose(ours, one[i], atol=1e-9)
            added = []
            for i in LAYERS:
                a, b = 0.05 * errors[f"a{i}"][trial], 0.05 * errors[f"b{i}"][trial]
                u, v = server[f"u{i}"][trial], server[f"v{i}"][trial]
                b = b - (b @ v) @ v.T  # what lies along V cannot be an increment
                added.append((a.T @ v.T + u @ b).numpy())
            rule = HYPER["momentum"][trial], HYPER["server_learning_rate"][trial]
            weight = np.array(SIZES[trial]) / sum(SIZES[trial])
            twins[trial] = twin.combine(side, told, weight, added, list(algorithm.ranks), *rule)
        received = Received((mean,), (torch.ones(S),), None, None)
        server = algorithm.update_server(server, received, Context(cohort, hyper, streams, t))
        for trial in range(S):
            for ours, expected in zip(theta(server, trial), twins[trial].theta, strict=True):
                np.testing.assert_allclose(ours, expected, atol=1e-8)


def test_a_step_is_the_riemannian_gradient_by_autograd() -> None:
    """One local step against autograd through the dense [weight; bias], projected densely."""
    algorithm, streams, hyper, cohort, data = parts(3)
    server, _ = algorithm.init(streams, hyper)
    work = data.select_cohort(0, cohort)
    work.steps = 1
    broadcast = algorithm.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
    _, payload, _ = algorithm.run_local_update(
        broadcast, {}, LocalContext(cohort, hyper, streams, 0, work)
    )
    row = 5  # of trial 1
    leaves = [torch.from_numpy(w).requires_grad_() for w in theta(server, 1)]
    batch = work.draw_batch(0)
    out = batch.x[row]
    for i, leaf in enumerate(leaves):
        out = torch.cat([out, out.new_ones(len(out), 1)], 1) @ leaf
        out = out.relu() if i + 1 < len(leaves) else out
    loss = torch.nn.functional.cross_entropy(out, batch.y[row], reduction="none")
    weight = torch.ones(len(loss)) / len(loss) if batch.weight is None else batch.weight[row]
    grads = torch.autograd.grad((loss * weight).sum(), leaves)
    for i, grad in enumerate(grads):
        u, v = server[f"u{i}"][1], server[f"v{i}"][1]
        normal = (grad - u @ (u.T @ grad)) @ (torch.eye(len(v), dtype=F64) - v @ v.T)
        expected = -HYPER["learning_rate"][1] * (grad - normal)
        torch.testing.assert_close(
            torch.from_numpy(increment(payload, server, 1, row, i)), expected, rtol=0, atol=1e-12
        )


def test_superposition_is_the_mean_however_the_devices_differ() -> None:
    """What is sent is linear in the devices' models: without noise nothing is lost, where the
    product of FedRLR's coded sums is off by its own size."""
    algorithm, streams, hyper, cohort, data = parts(2)
    server, _ = algorithm.init(streams, hyper)
    payload, _ = local(algorithm, server, cohort, data, hyper, 0)
    blocks = {n: b.unflatten(0, (S, K)).mean(1) for n, b in payload[0].tensors.items()}
    for i in LAYERS:
        mean = sum(increment(payload, server, 0, row, i) for row in range(K)) / K
        u, v = server[f"u{i}"][0], server[f"v{i}"][0]
        of_sums = blocks[f"a{i}"][0].T @ v.T + u @ blocks[f"b{i}"][0]
        np.testing.assert_allclose(of_sums.numpy(), mean, atol=1e-12)
        assert np.abs(mean).max() > 1e-3


def test_what_is_sent() -> None:
    """R (M + 1 + N) reals a layer: 7,284 for 784-256-256-10 at rank 4, biases in them."""
    algorithm = FedRLRPlus(FedRLRPlus.Settings(), mlp((784, 256, 256, 10)), 2)
    streams = Streams([0], [0])
    hyper = {name: torch.tensor(value[:1]) for name, value in HYPER.items()}
    server, devices = algorithm.init(streams, hyper)
    assert devices == {}
    cohort = everyone(torch.full((1, 2), 0.5))
    data = local_data([[8, 8]], 784, 10, streams, 4, 1)
    (group,), _ = local(algorithm, server, cohort, data, hyper, 0)
    assert group.num_coordinates == 7272 + 3 * 4
    assert (group.route, group.weighting) == ("uplink", "mean")


@pytest.mark.parametrize(
    ("rank", "dtype", "bound"),
    [((4, 5, 3), torch.float64, 1e-10), ((7, 6, 5), torch.float32, 2e-5)],
)
def test_points_stay_on_the_manifold(rank: Any, dtype: torch.dtype, bound: float) -> None:
    """At full rank too, where V is square and what is normal to it is rounding."""
    algorithm, _, hyper, cohort, _ = parts(rank)
    streams = Streams([3] * S, [0, 1], dtype=dtype)
    hyper = {name: value.to(dtype) for name, value in hyper.items()}
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, 4, STEPS)
    server, _ = algorithm.init(streams, hyper)
    for t in range(30):
        payload, _ = local(algorithm, server, cohort, data, hyper, t)
        mean = {n: b.unflatten(0, (S, K)).mean(1) for n, b in payload[0].tensors.items()}
        received = Received((mean,), (torch.ones(S),), None, None)
        server = algorithm.update_server(server, received, Context(cohort, hyper, streams, t))
    for i in LAYERS:
        for name in ("u", "v"):
            thin = server[f"{name}{i}"]
            one = torch.eye(thin.shape[2], dtype=dtype).expand(S, -1, -1)
            torch.testing.assert_close(thin.mT @ thin, one, rtol=0, atol=bound)
        along = server[f"v{i}"].mT @ server[f"e{i}"]
        torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=bound)


def test_a_zero_start_is_replaced() -> None:
    """Softmax regression starts at zero, which has no rank R."""
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (12,), 5)
    hyper = {name: torch.tensor(value[:1], dtype=F64) for name, value in HYPER.items()}
    server, _ = FedRLRPlus(FedRLRPlus.Settings(), model, 3).init(
        Streams([0], [0], dtype=F64), hyper
    )
    assert (server["s0"] > 0.01).all()


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: FedRLRPlus(
            FedRLRPlus.Settings(), ModuleModel(torch.nn.Linear(4, 3), (4,), 3), devices=2
        ),
        "fedrlr_plus",
    ),
    (lambda: FedRLRPlus(FedRLRPlus.Settings(rank=(1, 2)), mlp(WIDTHS), devices=2), "2 ranks"),
    (
        lambda: load_scenario({"name": "x", "algorithm": {"name": "fedrlr_plus", "rank": [4, 11]}}),
        r"use at most \[\d+, 10\]",
    ),
]


@pytest.mark.parametrize(("make", "says"), REFUSED)
def test_refuses(make: Callable[[], object], says: str) -> None:
    with pytest.raises((UserError, ScenarioError), match=says):
        make()
