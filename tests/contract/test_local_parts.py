"""Every registered model, data partition and kind of computing."""

from __future__ import annotations

import pytest
import torch
from contract import small

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
