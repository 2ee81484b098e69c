"""Every registered model under every kind of method: the same numbers however a run is cut up."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from contract.small import close, engine, equal, model, points, run, scores
from support.training_scores import score_training
from torch import Tensor

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.models import LayeredModel, build

MODULES = registry.TABLES["model"].modules
TOKENS = [name for name in MODULES if registry.load_component("model", name).scores_positions]
"""Models of sequences of tokens, which `test_losses.py` meets with methods."""
MODELS = [name for name in MODULES if name not in (registry.TABLES["model"].default, *TOKENS)]
"""The others than the base's own."""
# examples: methods that meet a model in different ways
KINDS = ["fedavg", "fedrlr", "fedrlr_plus", "fedmid", "prox_sgd", "magnitude_pruning"]
# examples: methods that meet a model in different ways
KINDS += ["pfedbred", "tdpfed", "fedem", "pfedbayes"]
"""Methods that meet a model each in its own way: dense or low-rank or factored weights, a
minibatch's span, all local data, random weights. The others do as one of these."""
# examples: methods that meet a model in different ways
LAYERED = ("fedrlr", "fedrlr_plus", "tdpfed", "pfedbayes")
"""Methods of models whose layers they know; the last one, of fully connected layers."""
SHAPE, CLASSES = (64,), 10


def met(name: str, algorithm: str) -> bool:
    """Whether a method trains a model. What is another size of a model, in the same file, is tested
    under federated averaging alone."""
    if algorithm == "fedavg":
        return True
    if next(other for other in MODULES if MODULES[other] == MODULES[name]) != name:
        return False
    section = registry.load_settings_class("model", name).model_validate(model(name))
    made = build(section, SHAPE, CLASSES)
    if not isinstance(made, LayeredModel):
        return algorithm not in LAYERED
    return algorithm != "pfedbayes" or not any(layer.window for layer in made.layers)


MET = [(name, algorithm) for name in MODELS for algorithm in KINDS if met(name, algorithm)]
PAIRS = pytest.mark.parametrize(("name", "algorithm"), MET)
ONE = {"float32": 1e-5, "float64": 1e-10}
"""Largest relative difference that a round may make, by precision."""


def is_next(name: str, algorithm: str) -> bool:
    """Whether a pair is tested in the fast suite: the methods of half of the models in turn.

    An LSTM, which takes many steps for one, is among them with the first method only.
    """
    if algorithm == KINDS[0]:
        return True
    return name != "lstm" and (MODELS.index(name) + KINDS.index(algorithm)) % 2 == 0


def of(name: str, algorithm: str, **keys: Any) -> dict[str, Any]:
    """The keys of a model under a method; an LSTM has six steps, and not one for each pixel."""
    if name == "lstm":
        keys["data"] = {"name": "gpu.cases:sequences"}
    return {
        "model": model(name),
        "algorithm": algorithm,
        "transport": "over_the_air",
        "trials": 2,
        **keys,
    }


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [pytest.param(*pair, marks=() if is_next(*pair) else pytest.mark.slow) for pair in MET],
)
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_stacked_is_alone(name: str, algorithm: str, dtype: str) -> None:
    """Two points of two trials in one stack, a trial of each alone."""
    keys = of(name, algorithm, **{"engine.dtype": dtype, "sweep": {"channel.snr_db": [0, 40]}})
    rounds = 1 if dtype == "float32" else 2  # of which the second starts from the first
    read = points(keys)
    together = engine(read)
    start = scores(together)
    whole = scores(run(together, rounds))
    assert all(value.isfinite().all() for value in whole.values())
    assert any(float((whole[view] - start[view]).abs().max()) > 1e-4 for view in whole)
    for point, trial in ((0, 1), (1, 0)):
        alone = scores(run(engine(read, trials=[trial], chosen=[point]), rounds))
        row = slice(2 * point + trial, 2 * point + trial + 1)
        close(alone, {view: value[row] for view, value in whole.items()}, ONE[dtype] * rounds)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [pair if pair[1] == "fedavg" else pytest.param(*pair, marks=pytest.mark.slow) for pair in MET],
)
def test_deterministic(name: str, algorithm: str) -> None:
    keys = of(name, algorithm)
    equal(scores(run(engine(keys), 2)), scores(run(engine(keys), 2)))


@pytest.mark.slow
@PAIRS
def test_chunked_is_unchunked(name: str, algorithm: str) -> None:
    keys = of(name, algorithm, **{"engine.dtype": "float64", "devices.count": 2})
    whole = scores(run(engine(keys | {"engine.chunk_mb": 1000}), 2))
    close(scores(run(engine(keys | {"engine.chunk_mb": 1e-6}), 2)), whole, 2e-10)


@pytest.mark.parametrize("name", MODULES)
def test_a_model_keeps_its_contract(name: str) -> None:
    """Sizes and the start are said alike, and scores do not depend on the other rows."""
    section = registry.load_settings_class("model", name).model_validate(model(name))
    made = build(section, SHAPE, CLASSES)
    assert made.macs > 0
    assert made.num_params == sum(math.prod(shape) for shape in made.shapes.values())
    streams = Streams([1, 2], [0, 0], dtype=torch.float64)
    params = made.init(lambda key, shape: streams.draw_uniform(f"init/{key}", 0, shape).clone())
    assert {key: tuple(block.shape) for key, block in params.items()} == {
        key: (2, *shape) for key, shape in made.shapes.items()
    }
    x = torch.rand(1, 5, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = torch.floor(CLASSES * x) if name in TOKENS else x
    both = made.logits(params, x)
    assert both.shape == (2, 5, *(SHAPE if name in TOKENS else ()), CLASSES)
    alone = made.logits({key: block[1:] for key, block in params.items()}, x)
    torch.testing.assert_close(both[1:], alone, rtol=0, atol=1e-12)
    assert set(made.norms) <= made.shapes.keys()
    assert bool(made.moments(params, x)) == made.batch_norms


class Dense:
    """A weight [n, M, N] as a `LinearMap`."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight)

    def backward(self, g: Tensor) -> Tensor:
        return torch.matmul(g, self.weight.mT)


@pytest.mark.parametrize("name", MODULES)
def test_linear_weights_may_be_shared_or_maps(name: str) -> None:
    """Scores and gradients with shared parameters equal those with a copy for each row."""
    section = registry.load_settings_class("model", name).model_validate(model(name))
    made = build(section, SHAPE, CLASSES)
    if not made.linear_weights:
        pytest.skip("no linear weights declared")
    for weight, (inputs, outputs) in made.linear_weights.items():
        assert math.prod(made.shapes[weight]) == inputs * outputs
    streams = Streams([1, 2], [0, 0], dtype=torch.float64)
    drawn = made.draw_random_start(
        lambda key, shape: streams.draw_uniform(f"init/{key}", 0, shape).clone()
    )
    x = torch.rand(2, 5, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = torch.floor(CLASSES * x) if name in TOKENS else x
    shared = {key: block[:1] for key, block in drawn.items()}
    copied = {key: block.expand(2, *block.shape[1:]).clone() for key, block in shared.items()}
    expected = made.logits(copied, x)
    torch.testing.assert_close(made.logits(shared, x), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(score_training(made, shared, x), expected, rtol=0, atol=1e-12)
    one = made.logits(copied, x[:1])
    for kind in range(2):  # every other weight is of each row, the rest is shared or a map
        own = {
            key: copied[key] if place % 2 == kind else block
            for place, (key, block) in enumerate(shared.items())
        }
        own |= {key: Dense(own[key]) for key in list(made.linear_weights)[kind::3]}
        torch.testing.assert_close(made.logits(own, x), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            made.logits(own, x[:1]).expand(2, *one.shape[1:]), one, rtol=0, atol=1e-12
        )
    leaf = next(iter(made.linear_weights))
    by_row = []
    for rows in ({leaf: Dense(copied[leaf].requires_grad_())}, {}):
        loss = score_training(made, shared | rows or copied, x).square().sum((1, 2))
        by_row.append(loss)
    torch.testing.assert_close(by_row[0], by_row[1], rtol=0, atol=1e-9)
    assert torch.autograd.grad(by_row[0].sum(), copied[leaf])[0].abs().sum() > 0
