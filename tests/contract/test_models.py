"""Every registered model under every kind of method: the same numbers however a run is cut up."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from contract.small import close, engine, model, points, run, scores
from support.training_scores import score_training
from torch import Tensor

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.models import LayeredModel, build
from otafl.models.layers import Conv

MODULES = registry.TABLES["model"].modules
TOKENS = [name for name in MODULES if registry.load_component("model", name).scores_positions]
"""Models of sequences of tokens, which `test_losses.py` meets with methods."""
MODELS = [name for name in MODULES if name not in (registry.TABLES["model"].default, *TOKENS)]
"""The others than the base's own."""
KINDS = ["fedavg", "fedrlr", "fedrlr_plus", "fedmid", "prox_sgd", "magnitude_pruning"]
KINDS += ["pfedbred", "tdpfed", "fedem", "pfedbayes"]
"""Methods that meet a model each in its own way: dense or low-rank or factored weights, a
minibatch's span, all local data, random weights. The others do as one of these."""
LAYERED = ("fedrlr", "fedrlr_plus", "tdpfed", "pfedbayes")
"""Methods of models whose layers they know; the last one, of fully connected layers."""
SHAPE, CLASSES = (64,), 10


def met(name: str, algorithm: str) -> bool:
    """Whether a method trains a model."""
    section = registry.load_settings_class("model", name).model_validate(model(name))
    made = build(section, SHAPE, CLASSES)
    if not isinstance(made, LayeredModel):
        return algorithm not in LAYERED
    return algorithm != "pfedbayes" or not any(isinstance(layer, Conv) for layer in made.layers)


CASES = [(name, "fedavg") for name in MODELS]
for place, kind in enumerate(KINDS[1:]):
    fit = [name for name in ("mlp", *MODELS) if met(name, kind)]
    CASES.append((fit[place % len(fit)], kind))
"""Every model under federated averaging, and every other kind of method with a model in turn."""

EVERY_CASE = pytest.mark.parametrize(("name", "algorithm"), CASES)


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


@EVERY_CASE
def test_stacked_is_alone(name: str, algorithm: str) -> None:
    """Two points of two trials in one stack, a trial of each alone, the second row by row."""
    keys = of(name, algorithm, **{"engine.dtype": "float64", "sweep": {"channel.snr_db": [0, 40]}})
    read = points(keys)
    together = engine(read)
    start = scores(together)
    whole = scores(run(together, 2))
    assert all(value.isfinite().all() for value in whole.values())
    assert any(float((whole[view] - start[view]).abs().max()) > 1e-4 for view in whole)
    in_pieces = points(keys | {"engine.chunk_mb": 1e-6})
    for stack, point, trial in ((read, 0, 1), (in_pieces, 1, 0)):
        alone = scores(run(engine(stack, trials=[trial], chosen=[point]), 2))
        row = slice(2 * point + trial, 2 * point + trial + 1)
        close(alone, {view: value[row] for view, value in whole.items()}, 2e-10)


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
