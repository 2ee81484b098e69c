"""Factors of dropout, and otafl's own networks with it."""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_agree

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models.base import Model, differentiate
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import make_chain

pytestmark = pytest.mark.exact
KEYS = torch.tensor([3, -4], dtype=torch.int64)


def make_layered(dropout: float, slope: float = 0.0) -> LayeredModel:
    return LayeredModel(make_chain([6, 5, 5, 3], slope), dropout=dropout)


def draw(model: Model, samples: int = 4) -> tuple[Tensors, Batch]:
    torch.manual_seed(0)
    params = {n: torch.randn(2, *s, dtype=torch.float64) for n, s in model.shapes.items()}
    x, y = torch.randn(2, samples, 6, dtype=torch.float64), torch.zeros(2, samples).long()
    return params, Batch(x, y, None, KEYS)


def test_gradients_of_layers_are_autograds() -> None:
    model = make_layered(0.5, slope=0.1)
    params, batch = draw(model)

    def compute_objective(leaves: Tensors, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss = model.loss.compute_mean(model.score_batch(leaves, batch), batch)
        return loss, loss

    expected_loss, expected = differentiate(compute_objective, params, batch)
    loss, grads = model.compute_gradients(params, batch)
    torch.testing.assert_close(loss, expected_loss)
    assert grads.keys() == expected.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected[name])
    trained = model.copy_trainable(params)
    model.take_sgd_step_(trained, batch, torch.ones(2, dtype=torch.float64))
    for name, block in trained.items():
        torch.testing.assert_close(block, params[name] - expected[name])


def test_a_test_is_without_dropout() -> None:
    params, batch = draw(make_layered(0.5))
    plain = make_layered(0.0).logits(params, batch.x)
    assert_agree(make_layered(0.5).logits(params, batch.x), plain)
    assert not torch.allclose(make_layered(0.5).score_batch(params, batch), plain)
    assert_agree(make_layered(0.0).score_batch(params, batch), plain)


def test_submodels_refuse_dropout() -> None:
    with pytest.raises(UserError, match=r"^model.dropout: got 0.5, but submodels"):
        make_layered(0.5).narrow(lambda width: width)
