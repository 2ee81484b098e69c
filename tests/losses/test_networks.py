"""Every network predicts values by its last layer, with the gradient of the squared loss."""

from __future__ import annotations

import pytest
import torch
from contract.small import model as section
from support.training_scores import score_training

from otafl import models
from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.losses.squared import Squared
from otafl.models.network import ResizableModel

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_a_network_has_a_regression_head(name: str) -> None:
    shape = (8, 3) if name == "lstm" else (16, 16)
    settings = registry.load_settings_class("model", name).model_validate(section(name))
    model = models.build(settings, shape, 2, Squared())
    generator = torch.Generator().manual_seed(0)

    def draw(*sides: int) -> torch.Tensor:
        return torch.randn(*sides, dtype=torch.float64, generator=generator)

    params = {key: 0.3 * draw(2, *sides) for key, sides in model.shapes.items()}
    batch = Batch(draw(2, 5, *shape), draw(2, 5, 2), None)
    loss, grads = model.compute_gradients(params, batch)
    leaves = {key: block.clone().requires_grad_() for key, block in params.items()}
    scores = score_training(model, leaves, batch.x)
    wanted = 0.5 * (scores - batch.y).square().sum(2).mean(1)
    torch.testing.assert_close(loss, wanted.detach())
    exact = torch.autograd.grad(wanted.sum(), list(leaves.values()))
    torch.testing.assert_close([grads[key] for key in leaves], list(exact))
    if isinstance(model, ResizableModel):
        assert model.build_network(lambda channels: channels).loss == Squared()
