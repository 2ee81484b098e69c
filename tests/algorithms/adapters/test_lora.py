"""What LoRA sends, keeps and costs in each mode; ranks, power and models.

The contract suite tries its default mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run

from otafl.algorithms.adapters.adapters import AdaptedLayer, count_adapter_flops
from otafl.algorithms.adapters.lora import NORM
from otafl.algorithms.adapters.lora_factors import find_bases, truncate_ranks
from otafl.algorithms.deliveries import sum_rows
from otafl.core.contracts import Broadcast, Cohort, LocalContext, Workload
from otafl.core.errors import UserError
from otafl.engine.engine import Engine

pytestmark = pytest.mark.exact

MODES: dict[str, dict[str, Any]] = {
    "both": {"mode": "both", "power_split": "laser"},
    "freeze_a": {"mode": "freeze_a", "levels": [2, 1]},
    "alternate": {"mode": "alternate"},
    "square": {"mode": "square"},
    "tangent": {"mode": "tangent", "power_split": "norm"},
    "share_a": {"mode": "share_a"},
    "residual": {"mode": "residual"},
    "norm": {"levels": [2, 1], "weights": "norm"},
    "stacking": {"levels": [2, 1], "aggregate": "stacking"},
    "svd": {"levels": [2, 1], "aggregate": "svd"},
    "dense": {"levels": [2, 1], "aggregate": "dense"},
    "head": {"targets": []},
}
EACH = ("residual", "stacking", "svd")
HEAD = 4 * 10 + 10
"""The small model has layers of 64 x 4 and 4 x 10."""


def of(name: str, **keys: Any) -> dict[str, Any]:
    method = {"name": "lora", "rank": 2, "learning_rate": 0.3} | MODES[name]
    transport = "digital" if name in EACH else "over_the_air"
    return {"algorithm": method, "transport": transport, "engine.dtype": "float64", **keys}


BOTH = 2 * (64 + 4)
SENT = {
    "both": (BOTH, BOTH),
    "square": (2 * 2, 4),
    "tangent": (BOTH, BOTH + 2),
    "share_a": (2 * 64, 2 * 64),
    "norm": (BOTH + 1, BOTH),
    "dense": (64 * 4, BOTH),
    "residual": (BOTH, BOTH + 64 * 4),
    "head": (0, 0),
}
"""Reals up and down."""


@pytest.mark.parametrize("name", SENT)
def test_reals_up_and_down(name: str) -> None:
    """A real is a symbol of the shared slot, and the head is sent in all modes. The frozen weights
    are never broadcast, but what the server adds to them is."""
    one, (up, down) = engine(of(name)), SENT[name]
    cohort = one.select_cohort(None, 0)
    assert one.parts.algorithm.broadcast(one.server, cohort).num_coordinates == down + HEAD
    if name not in EACH:
        symbols = run(one, 1).means.take()["uplink_symbols"]
        assert symbols.tolist() == [up + HEAD] * 3


def test_alternate_rounds() -> None:
    """B in even ones, A in odd ones; operations are their mean."""
    one, total = engine(of("alternate")), 0
    for t, sent in enumerate((2 * 4, 2 * 64, 2 * 4)):
        one.run_round(t)
        total += sent + HEAD
        assert one.means.take()["uplink_symbols"].tolist() == [total] * 3
    method, load = one.parts.algorithm, Workload(3, 5, np.array([20.0]))
    a, b = (
        count_adapter_flops(method.model, method.layers, method.head, part, load) for part in "AB"
    )
    assert method.count_flops(load) == (a + b) / 2


def test_a_digital_uplink_pays_for_the_own_rank() -> None:
    """Two levels, two devices each: B has 8 or 4 coordinates."""
    keys = of("freeze_a", transport="digital")
    keys["devices.capacity_levels"] = {"name": "fixed", "shares": [1, 1]}
    bits = run(engine(keys), 1).means.take()["uplink_bits"]
    keys["devices.capacity_levels"] = {"name": "fixed", "shares": [1, 0]}
    full = run(engine(keys), 1).means.take()["uplink_bits"]
    assert (full - bits).tolist() == [2 * 4 * 32.0] * 3


def test_ranks_are_kept() -> None:
    """Devices of rank 1 move only the first row of A and column of B."""
    keys = of("norm", **{"devices.capacity_levels": {"name": "fixed", "shares": [0, 1]}})
    one = engine(keys | {"transport": "ideal"})
    before = {name: block.clone() for name, block in one.server.items()}
    run(one, 2)
    change = {name: one.server[name] - before[name] for name in before}
    assert change["A.weight0"][:, 1].abs().max() == 0
    assert change["B.weight0"][:, :, 1].abs().max() == 0
    assert change["B.weight0"][:, :, 0].abs().max() > 0


def train_once(one: Engine) -> tuple[Cohort, Any]:
    cohort = one.select_cohort(None, 0)
    rows: Broadcast = one.parts.algorithm.broadcast(one.server, cohort).expand_rows(
        cohort, 0, cohort.num_rows
    )
    work = one.parts.samples.training_data.select_cohort(0, cohort)
    context = LocalContext(cohort, one.parts.hyper, one.parts.streams, 0, work)
    with torch.inference_mode():
        payload = one.parts.algorithm.run_local_update(rows, {}, context)[1]
    return cohort, payload


@pytest.mark.parametrize("name", ["stacking", "svd", "dense"])
def test_products_of_several_ranks_are_averaged(name: str) -> None:
    """Over an ideal uplink the weight is the mean of the devices' weights, or its best part of rank
    2: the twin forms each device's product from what it sends."""
    one, other = (engine(of(name, transport="ideal", trials=2)) for _ in range(2))
    start = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 4, 2)))
    for each in (one, other):  # as in later rounds, where the server's B is not 0
        each.server["B.weight0"] += start
    cohort, payload = train_once(other)
    method = one.parts.algorithm
    ranks = torch.tensor([2, 1])[cohort.capacity_level]
    thin = {n: b[cohort.trial] for n, b in one.server.items() if n[:2] in ("A.", "B.")}
    thin = truncate_ranks(thin, ranks)
    if name == "dense":
        product = payload[0].tensors["product.weight0"]
        product = product + (thin["B.weight0"] @ thin["A.weight0"]).mT
    else:
        sent = payload[0].tensors | payload[1].tensors
        a, b = (thin[n] + sent[n] for n in ("A.weight0", "B.weight0"))
        product = (b @ a).mT
    wanted = sum_rows(product, cohort.weight, cohort)
    if name != "stacking":
        u, s, vt = torch.linalg.svd(wanted)
        wanted = u[:, :, :2] * s[:, None, :2] @ vt[:, :2]
    frozen = method.adapted.backbone["weight0"]
    one.run_round(0)
    (view,) = method.build_views(one.server, {}).values()
    torch.testing.assert_close(view.params["weight0"], frozen + wanted, rtol=1e-9, atol=1e-11)


def test_weights_by_norm() -> None:
    """HetLoRA's weights, times the share of samples, on the increments of all devices."""
    one, other = (engine(of("norm", transport="ideal", trials=2)) for _ in range(2))
    cohort, payload = train_once(other)
    ranks = torch.tensor([2, 1])[cohort.capacity_level]
    thin = {n: b[cohort.trial] for n, b in one.server.items() if n[:2] in ("A.", "B.")}
    thin = truncate_ranks(thin, ranks)
    norm = payload[2].tensors[NORM][:, 0]
    a, b = (
        thin[n] + payload[g].tensors[n] / norm[:, None, None]
        for g, n in enumerate(("A.weight0", "B.weight0"))
    )
    torch.testing.assert_close(torch.linalg.matrix_norm(b @ a), norm)
    before = {name: block.clone() for name, block in one.server.items()}
    one.run_round(0)
    weight = cohort.weight * norm
    total = torch.zeros(2, dtype=weight.dtype).index_add_(0, cohort.trial, weight)
    for name, block in (("A.weight0", a), ("B.weight0", b)):
        change = sum_rows(block - thin[name], weight / total[cohort.trial], cohort)
        torch.testing.assert_close(one.server[name], before[name] + change)


T = {"name": "transformer", "patch": 4, "depth": 2, "width": 8, "heads": 2}
MODELS: dict[str, Any] = {
    "mlp": {"name": "mlp", "hidden": [6, 5]},
    "cnn": {"name": "cnn", "channels": [3, 4], "hidden": [6]},
    "conv_net": {"name": "conv_net", "channels": [3, 4], "norm": "group"},
    "resnet": {"name": "resnet", "blocks": [1, 1], "channels": [2, 3]},
    "lstm": {"name": "lstm", "hidden": 5},
    "transformer": T,
}


@pytest.mark.parametrize(
    ("mode", "model"),
    [*(("both", one) for one in MODELS), ("tangent", "mlp"), ("tangent", "resnet")],
)
def test_models(model: str, mode: str) -> None:
    """Of networks with linear or convolution layers, with and without linear maps, SGD moves the
    merged weights, and nothing else but the head."""
    keys = of(mode, transport="ideal", trials=1, model=MODELS[model])
    keys["algorithm"] = {"name": "lora", "mode": mode, "rank": 2, "learning_rate": 0.05}
    one = engine(keys)
    method = one.parts.algorithm
    before = {n: b.clone() for n, b in method.build_views(one.server, {})["global"].params.items()}
    run(one, 2)
    after = method.build_views(one.server, {})["global"].params
    moved = {layer.weight for layer in method.layers} | set(method.head)
    assert {layer.rank for layer in method.layers} <= {1, 2}
    for name, block in before.items():
        assert torch.equal(block, after[name]) is (name not in moved), name


def test_targets() -> None:
    """Those of attention by default."""
    one = engine(of("both", model=T))
    found = [layer.weight for layer in one.parts.algorithm.layers]
    assert found == ["block0.query", "block0.value", "block1.query", "block1.value"]
    assert one.parts.algorithm.head == ("head", "head_bias")
    assert {layer.positions for layer in one.parts.algorithm.layers} == {5}
    keys = of("both", model=T)
    keys["algorithm"] = keys["algorithm"] | {"targets": ["up", "block1.key", "head"]}
    method = engine(keys).parts.algorithm
    found = [layer.weight for layer in method.layers]
    assert found == ["block0.up", "block1.key", "block1.up", "head"]
    assert method.head == ("head_bias",)


@pytest.mark.parametrize(
    ("settings", "model", "words"),
    [
        ({}, "softmax_regression", "no linear or convolution layer before its head"),
        ({"targets": ["weigth0"]}, "mlp", "weigth0: not a layer .* weight0"),
    ],
)
def test_refusals_of_a_model(settings: dict[str, Any], model: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        engine({"algorithm": {"name": "lora", **settings}, "model": model})


def test_common_bases_are_orthonormal() -> None:
    layer = AdaptedLayer("weight0", 9, 6, 2, 1)
    matrix = torch.randn(3, 9, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = find_bases([layer], {"weight0": matrix})
    a, b = found["A.weight0"], found["B.weight0"]
    for product in (a @ a.mT, b.mT @ b):
        torch.testing.assert_close(product, torch.eye(2, dtype=torch.float64).expand(3, -1, -1))
