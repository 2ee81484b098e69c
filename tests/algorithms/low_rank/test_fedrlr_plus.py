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
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    Rounds,
    compute_losses,
    draw_batches,
    get_shares,
)
from twins import fedrlr_plus as twin
from twins.setting import mlp

from otafl import load_scenario
from otafl.algorithms.low_rank.fedrlr_plus import FedRLRPlus
from otafl.core.contracts import Context, Received, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense
from otafl.models.module_model import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.twin

F64 = torch.float64
S, K, WIDTHS, ROUNDS = 2, 5, (INPUTS, 7, 6, CLASSES), 3
LAYERS = range(3)
HYPER = {
    "learning_rate": [0.3, 0.1],
    "decay": [0.5, 0.0],
    "server_learning_rate": [1.0, 0.7],
    "momentum": [0.8, 0.3],
}


def make(rank: Any, dtype: torch.dtype = F64, steps: int = 3) -> Rounds:
    model = mlp(WIDTHS, bias_start="uniform")
    return Rounds("fedrlr_plus", model, {"rank": rank}, steps, dtype=dtype, **HYPER)


def increment(sent: Tensors, server: Tensors, trial: int, row: int, layer: int) -> np.ndarray:
    """A V^T + U B^T of a row, dense."""
    a, b = sent[f"a{layer}"][row], sent[f"b{layer}"][row]
    u, v = server[f"u{layer}"][trial], server[f"v{layer}"][trial]
    return (a.T @ v.T + u @ b).numpy()


def theta(server: Tensors, trial: int) -> list[np.ndarray]:
    points = [LowRank(*(server[f"{n}{i}"][trial : trial + 1] for n in "usv")) for i in LAYERS]
    return [to_dense(point)[0].numpy() for point in points]


@pytest.mark.parametrize(("rank", "noisy"), [(2, True), ((4, 5, 3), False), ((6, 6, 3), True)])
def test_rounds_are_the_twins(rank: Any, noisy: bool) -> None:
    ours = make(rank)
    method, ranks = ours.method, list(ours.method.ranks)
    generator = torch.Generator().manual_seed(1)
    twins = []
    for trial in range(S):
        start = method.model.init(
            lambda name, shape: ours.streams.draw_uniform(f"init/{name}", 0, shape)
        )
        weights, biases = (
            [start[getattr(layer, kind)][trial].numpy() for layer in method.model.layers]
            for kind in ("weight", "bias")
        )
        twins.append(twin.start(weights, biases, ranks))
    for t in range(ROUNDS):
        server = ours.server
        one = ours.run_round(t)
        assert ours.devices == {}
        sent = one.payload[0].tensors
        errors = {
            name: 0.05 * noisy * torch.randn(S, *block.shape[1:], generator=generator, dtype=F64)
            for name, block in sent.items()
        }
        mean = {}
        for name, block in sent.items():
            rows, weight = block.unflatten(0, (S, K)), ours.all.weight.view(S, K)
            mean[name] = torch.einsum("sk,sk...->s...", weight, rows) + errors[name]
        for trial in range(S):
            step = HYPER["learning_rate"][trial] / (1 + HYPER["decay"][trial] * t)
            own = [twin.local(twins[trial], ranks, b, step) for b in draw_batches(one, trial)]
            expected = [loss for _, loss in own]
            np.testing.assert_allclose(compute_losses(one, trial), expected, rtol=1e-9)
            for device, (told, _) in enumerate(own):
                for i in LAYERS:
                    found = increment(sent, server, trial, trial * K + device, i)
                    np.testing.assert_allclose(found, told[i], atol=1e-9)
            added = []
            for i in LAYERS:
                a, b = errors[f"a{i}"][trial], errors[f"b{i}"][trial]
                u, v = server[f"u{i}"][trial], server[f"v{i}"][trial]
                b = b - (b @ v) @ v.T  # what lies along V cannot be an increment
                added.append((a.T @ v.T + u @ b).numpy())
            rule = HYPER["momentum"][trial], HYPER["server_learning_rate"][trial]
            told_all, share = [told for told, _ in own], np.array(get_shares(one, trial))
            twins[trial] = twin.combine(twins[trial], told_all, share, added, ranks, *rule)
        received = Received((mean,), (torch.ones(S),), None, None)
        context = Context(one.cohort, ours.hyper, ours.streams, t)
        ours.server = method.update_server(server, received, context)
        for trial in range(S):
            for found, wanted in zip(theta(ours.server, trial), twins[trial].theta, strict=True):
                np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_a_zero_start_is_replaced() -> None:
    """Softmax regression starts at zero, which has no rank R."""
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (12,), 5)
    hyper = {name: torch.tensor(value[:1], dtype=F64) for name, value in HYPER.items()}
    method = FedRLRPlus(FedRLRPlus.Settings(), model, 3)
    server, _ = method.init(Streams([0], [0], dtype=F64), hyper)
    assert (server["s0"] > 0.01).all()


def test_what_is_sent() -> None:
    """R (M + 1 + N) reals a layer, biases in them; 7,284 for 784-256-256-10 at rank 4."""
    (group,) = make(2).run_round(0).payload
    assert group.num_coordinates == 2 * (6 + 1 + 7 + 7 + 1 + 6 + 6 + 1 + 3)
    assert (group.route, group.weighting) == ("uplink", "mean")
    server, devices = FedRLRPlus(FedRLRPlus.Settings(), mlp((784, 256, 256, 10)), 2).init(
        Streams([0], [0]), {}
    )
    assert devices == {}
    assert sum(server[f"{name}{i}"].numel() for name in "de" for i in LAYERS) == 7272 + 3 * 4


@pytest.mark.parametrize(
    ("rank", "dtype", "bound"),
    [((4, 5, 3), torch.float64, 1e-10), ((6, 6, 3), torch.float32, 2e-5)],
)
def test_points_stay_on_the_manifold(rank: Any, dtype: torch.dtype, bound: float) -> None:
    """At full rank too, where V is square and what is normal to it is rounding."""
    ours = make(rank, dtype)
    for t in range(30):
        ours.run_round(t)
    server = ours.server
    for i in LAYERS:
        for name in ("u", "v"):
            thin = server[f"{name}{i}"]
            one = torch.eye(thin.shape[2], dtype=dtype).expand(S, -1, -1)
            torch.testing.assert_close(thin.mT @ thin, one, rtol=0, atol=bound)
        along = server[f"v{i}"].mT @ server[f"e{i}"]
        torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=bound)


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
