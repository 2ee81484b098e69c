"""Every registered model, data partition and kind of computing."""

from __future__ import annotations

import math

import pytest
import torch
from contract import small
from support.training_scores import score_training
from torch import Tensor

from otafl import models
from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.core.rng import Streams
from otafl.losses.cross_entropy import NextToken
from otafl.models.base import Model

MODELS = pytest.mark.parametrize("name", registry.list_names("model"))

SHAPE, CLASSES, ROWS, BATCH = (64,), 10, 3, 5


def built(name: str) -> tuple[Model, dict[str, torch.Tensor], Batch]:
    """A model, parameters that differ from row to row, and a minibatch."""
    settings = registry.load_settings_class("model", name).model_validate(small.model(name))
    model = models.build(settings, SHAPE, CLASSES)
    streams = Streams([0] * ROWS, range(ROWS), dtype=torch.float64)
    params = model.init(lambda key, shape: streams.draw_uniform(key, 0, shape))
    params = {
        key: (value + 0.1 * streams.draw_normal(f"shift/{key}", 0, value.shape[1:])).clone()
        for key, value in params.items()
    }
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, BATCH, *SHAPE, dtype=torch.float64, generator=generator)
    y = torch.randint(CLASSES, (ROWS, BATCH), generator=generator)
    if model.scores_positions:
        model.loss = NextToken()
        x, y = torch.floor(CLASSES * x), torch.floor(CLASSES * x.flip(1)).long()
    return model, params, Batch(x, y, None)


@MODELS
def test_model_rows_are_apart(name: str) -> None:
    """A row alone gives what it gives among others, also where all rows see the same samples."""
    model, params, batch = built(name)
    whole, (loss, grads) = model.logits(params, batch.x), model.compute_gradients(params, batch)
    shared = model.logits(params, batch.x[:1])
    for row in range(ROWS):
        at = slice(row, row + 1)
        own = {key: value[at] for key, value in params.items()}
        alone = Batch(batch.x[at], batch.y[at], None)
        own_loss, own_grads = model.compute_gradients(own, alone)
        torch.testing.assert_close(model.logits(own, alone.x), whole[at])
        torch.testing.assert_close(model.logits(own, batch.x[:1]), shared[at])
        torch.testing.assert_close(own_loss, loss[at])
        torch.testing.assert_close(own_grads, {key: grad[at] for key, grad in grads.items()})


@MODELS
def test_model_gradients_and_step(name: str) -> None:
    """Against central differences in one random direction, with unequal sample weights; and a step
    of SGD is minus the step size times the gradient."""
    model, params, batch = built(name)
    weight = torch.rand(ROWS, BATCH, dtype=torch.float64) + 0.1
    batch = Batch(batch.x, batch.y, weight / weight.sum(1, keepdim=True))
    loss, grads = model.compute_gradients(params, batch)
    generator = torch.Generator().manual_seed(1)
    towards = {
        key: torch.randn(value.shape, dtype=torch.float64, generator=generator)
        for key, value in params.items()
    }
    h = 1e-6
    ahead, _ = model.compute_gradients({k: v + h * towards[k] for k, v in params.items()}, batch)
    behind, _ = model.compute_gradients({k: v - h * towards[k] for k, v in params.items()}, batch)
    slope = sum((grads[key] * towards[key]).flatten(1).sum(1) for key in grads)
    torch.testing.assert_close((ahead - behind) / (2 * h), slope, rtol=1e-5, atol=1e-7)
    moved = {key: value.clone() for key, value in params.items()}
    step = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    torch.testing.assert_close(model.take_sgd_step_(moved, batch, step), loss)
    for key, grad in grads.items():
        by = step.view(-1, *[1] * (grad.dim() - 1)) * grad
        torch.testing.assert_close(moved[key], params[key] - by)


class Dense:
    """A weight [n, M, N] as a `LinearMap`."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight)

    def backward(self, g: Tensor) -> Tensor:
        return torch.matmul(g, self.weight.mT)


@MODELS
def test_linear_weights_may_be_shared_or_maps(name: str) -> None:
    """Scores and gradients with shared parameters equal those with a copy for each row."""
    made, drawn, batch = built(name)
    if not made.linear_weights:
        pytest.skip("no linear weights declared")
    for weight, (inputs, outputs) in made.linear_weights.items():
        assert math.prod(made.shapes[weight]) == inputs * outputs
    x = batch.x
    shared = {key: block[:1] for key, block in drawn.items()}
    copied = {key: block.expand(ROWS, *block.shape[1:]).clone() for key, block in shared.items()}
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
            made.logits(own, x[:1]).expand(ROWS, *one.shape[1:]), one, rtol=0, atol=1e-12
        )
    leaf = next(iter(made.linear_weights))
    by_row = []
    for rows in ({leaf: Dense(copied[leaf].requires_grad_())}, {}):
        loss = score_training(made, shared | rows or copied, x).square().sum((1, 2))
        by_row.append(loss)
    torch.testing.assert_close(by_row[0], by_row[1], rtol=0, atol=1e-9)
    assert torch.autograd.grad(by_row[0].sum(), copied[leaf])[0].abs().sum() > 0
