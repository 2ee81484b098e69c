"""TDPFed by itself: settings, limits, what travels over which link, and the paper's facts that are
not algebra.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from twins import tdpfed as twin
from twins.setting import everyone, mlp

from otafl.algorithms.low_rank.tdpfed import TDPFed
from otafl.core.contracts import Cohort, Context, Received, Tensors, Workload
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised import cp
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact

RATES = {
    "penalty": 12.0,
    "personal_learning_rate": 0.08,
    "factor_learning_rate": 8e-4,
    "server_learning_rate": 1.0,
}


def hyper(**changes: float) -> Tensors:
    values = RATES | changes
    return {name: torch.tensor([value], dtype=torch.float64) for name, value in values.items()}


def test_act_is_refused_over_the_air() -> None:
    tree = {
        "name": "x",
        "data": "digits",
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "tdpfed", "aggregation": "act"},
        "transport": "over_the_air",
        "devices": {"count": 2},
        "training": {"rounds": 1, "batch_size": 2},
    }
    with pytest.raises(UserError, match="'tdpfed' needs each of them; use one of the transports"):
        load_scenario(tree)
    load_scenario(tree | {"algorithm": {"name": "tdpfed"}})
    load_scenario(tree | {"transport": "ideal"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 3, "compression_rate": 2.0}, "give only one of them"),
        ({"act_theta_start": "tensor", "downlink": "both"}, "needs aggregation: act; got"),
        ({"act_theta_start": "tensor", "aggregation": "act"}, "needs downlink: both"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TDPFed.Settings.model_validate(settings)


def test_ranks_and_their_compression() -> None:
    """Table I's DNN and a convolutional network; a bias is outside of the compression."""
    dnn = mlp((784, 100, 10))
    assert TDPFed(TDPFed.Settings(), dnn, 20).ranks == (44, 5)
    assert TDPFed(TDPFed.Settings(compression_rate=1.5), dnn, 20).ranks == (59, 6)
    assert TDPFed(TDPFed.Settings(rank=200), dnn, 20).ranks == (100, 10)
    assert TDPFed(TDPFed.Settings(rank=(7, 3)), dnn, 20).ranks == (7, 3)
    with pytest.raises(UserError, match="got 3 ranks for 2 layers"):
        TDPFed(TDPFed.Settings(rank=(7, 3, 2)), dnn, 20)
    ours = TDPFed(TDPFed.Settings(), dnn, 20)
    told = ours.constants
    assert 1 / told["compression_actual"] == pytest.approx(2.0129, abs=5e-5)
    assert 1 / told["compression_nominal"] == pytest.approx(1.818, abs=5e-4)  # of the last of two
    server, _ = ours.init(Streams([1], [0]), {})
    cohort = everyone(torch.ones(1, 20) / 20)
    assert ours.broadcast(server, cohort).num_coordinates == 39_556
    both = TDPFed(TDPFed.Settings(downlink="both"), dnn, 20)
    server, _ = both.init(Streams([1], [0]), {})
    assert both.broadcast(server, cohort).num_coordinates == 39_556 + 79_400
    x15 = TDPFed(TDPFed.Settings(compression_rate=1.5), dnn, 20)
    assert sum(b[0].numel() for b in x15.init(Streams([1], [0]), {})[0].values()) == 52_926


def test_lost_devices_do_not_count_in_act() -> None:
    """What remains is the mean of those that came; biases too."""
    model = mlp((6, 8, 3))
    ours = TDPFed(TDPFed.Settings(aggregation="act", rank=3), model, 3)
    streams = Streams([5], [0], dtype=torch.float64)
    values = hyper()
    server, _ = ours.init(streams, values)
    cohort = everyone(torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64))
    each = {
        n: torch.cat([b + 0.01 * k * (k + 1) for k in range(3)])
        for n, b in server.items()
        if n != "residual"
    }
    moved = {n: b - server[n] for n, b in each.items()}
    came = torch.tensor([True, False, True])
    one = torch.ones(1, dtype=torch.float64)
    zero = {n: b * came.view(-1, *[1] * (b.dim() - 1)) for n, b in moved.items()}
    received = Received((moved,), (one,), (zero,), None, (came,))
    new = ours.update_server(server, received, Context(cohort, values, streams, 0))
    kept = Cohort.take(cohort, torch.tensor([0, 2]))
    left = {n: b[[0, 2]] for n, b in moved.items()}
    received = Received((moved,), (one,), (left,), None)
    expected = ours.update_server(server, received, Context(kept, values, streams, 0))
    for name, block in expected.items():
        torch.testing.assert_close(new[name], block, rtol=0, atol=1e-12)
    bias = each["bias0"][0] * 5 / 7 + each["bias0"][2] * 2 / 7
    torch.testing.assert_close(new["bias0"][0], bias)
    numbers = [each[f"weight0.A{n}"].numpy().transpose(0, 2, 1) for n in (1, 2)]
    sent = [[f[k] for f in numbers] for k in (0, 2)]
    mean = twin.act(sent[0], sent, [5 / 7, 2 / 7], 1.0)
    apart = cp.kruskal([new["weight0.A1"], new["weight0.A2"]])[0].numpy() - mean
    tail = np.linalg.svd(mean, compute_uv=False)[3:]
    assert np.linalg.norm(apart) == pytest.approx(np.linalg.norm(tail), rel=1e-9)
    second = [each[f"weight1.A{n}"].numpy().transpose(0, 2, 1) for n in (1, 2)]
    sent = [[f[k] for f in second] for k in (0, 2)]
    whole = (
        np.linalg.norm(mean) ** 2
        + np.linalg.norm(twin.act(sent[0], sent, [5 / 7, 2 / 7], 1.0)) ** 2
    )
    lost = np.linalg.norm(tail) ** 2  # the second layer has rank 3: nothing is lost there
    assert float(new["residual"]) == pytest.approx(float(np.sqrt(lost / whole)), rel=1e-6)


SMALL: dict[str, Any] = {"name": "tdpfed", "solver_steps": 2, "factor_steps": 3}


def test_views_and_measures() -> None:
    keys = {"engine.dtype": "float64", "algorithm": SMALL | {"aggregation": "act"}}
    one = run(engine(keys | {"transport": "ideal"}), 2)
    algorithm, devices = one.parts.algorithm, one.devices.get_all()
    views = algorithm.build_views(one.server, devices)
    assert {n: v.owner for n, v in views.items()} == {
        "global": "trial",
        "local": "device",
        "personal": "device",
    }
    x = torch.from_numpy(one.parts.samples.data.x_test[:5]).double()[None]
    model = one.parts.model
    for name, blocks in (("global", one.server), ("local", views["local"].params)):
        dense = {
            n: cp.kruskal([blocks[f"{n}.A1"], blocks[f"{n}.A2"]]) for n in ("weight0", "weight1")
        }
        dense |= {n: blocks[n] for n in ("bias0", "bias1")}
        view = views[name]
        torch.testing.assert_close(view.predict_fn(view.params, x), model.logits(dense, x))
    gap, whole = torch.zeros(2, 12, dtype=torch.float64)
    for name, block in dense.items():
        theta = devices[f"personal.{name}"].flatten(0, 1)
        gap = gap + (theta - block).flatten(1).square().sum(1)
        whole = whole + block.flatten(1).square().sum(1)
    expected = (gap / whole).sqrt().view(3, 4).mean(1)
    told = algorithm.compute_metrics(one.server, devices)
    torch.testing.assert_close(told["prox_gap"], expected)
    assert (told["prox_gap"] > 1e-3).all()
    assert (told["refactoring_error"] > 1e-9).all()
    assert (told["refactoring_error"] < 0.1).all()


def test_flops_of_the_paper() -> None:
    """MNIST at x2, a device and global round of 23 minibatches of 20: 0.37 GMAC of gradients; of
    the factors three products with the tensor a step, 4.0. Minibatches of 40 double the gradients
    alone."""
    ours = TDPFed(TDPFed.Settings(), mlp((784, 100, 10)), 20)
    total, double = (
        ours.count_flops(Workload(23, batch, np.array([1e3]))).item() for batch in (20, 40)
    )
    gradients = 5 * (6 * 79_400 - 2 * 78_400) * 460
    assert gradients / 2 == pytest.approx(0.37e9, rel=0.01)
    assert double - total == pytest.approx(gradients, rel=0.01)
    assert (total - gradients) / 2 == pytest.approx(4.2e9, rel=0.05)
