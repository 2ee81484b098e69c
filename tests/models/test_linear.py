"""Linear regression is one affine layer with a penalty, and its gradient is that of autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run

from otafl.core.contracts import Batch
from otafl.losses.squared import Squared
from otafl.models.softmax_regression import LinearModel

pytestmark = pytest.mark.exact

ROWS, BATCH, INPUTS, OUTPUTS = 3, 5, 4, 2


def make(**settings: Any) -> tuple[LinearModel, dict[str, torch.Tensor], Batch]:
    model = LinearModel(LinearModel.Settings(**settings), (INPUTS,), OUTPUTS)
    model.loss = Squared()
    generator = torch.Generator().manual_seed(4)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    params = {name: draw(ROWS, *shape) for name, shape in model.shapes.items()}
    return model, params, Batch(draw(ROWS, BATCH, INPUTS), draw(ROWS, BATCH, OUTPUTS), None)


@pytest.mark.parametrize(("bias", "ridge"), [(True, 0.7), (False, 0.0)])
def test_gradients_are_those_of_the_penalised_objective(bias: bool, ridge: float) -> None:
    model, params, batch = make(bias=bias, ridge=ridge)
    leaves = {name: block.clone().requires_grad_() for name, block in params.items()}
    scores = torch.einsum("nbm,nmo->nbo", batch.x, leaves["weight0"])
    scores = scores + leaves["bias0"][:, None] if bias else scores
    loss = 0.5 * (scores - batch.y).square().sum(2).mean(1)
    loss = loss + 0.5 * ridge * leaves["weight0"].square().sum((1, 2))
    wanted = torch.autograd.grad(loss.sum(), list(leaves.values()))
    value, grads = model.compute_gradients(params, batch)
    torch.testing.assert_close(value, loss.detach())
    torch.testing.assert_close(list(grads.values()), list(wanted))


def test_full_batches_lead_to_the_ridge_regression() -> None:
    keys = {
        "data": {"name": "ridge", "users": 4, "user_samples": 12, "features": 3},
        "model": {"name": "linear", "bias": False, "ridge": 0.2},
        "algorithm": {"name": "fedavg", "learning_rate": 0.9},
        "transport": "ideal",
        "engine.dtype": "float64",
        "training.batch_size": 12,
        "training.local_steps": 1,
        "trials": 1,
    }
    one = run(engine(keys), 150)
    data = one.parts.samples.data
    x, y = data.x_train.astype(float), data.y_train.astype(float)
    law = np.linalg.solve(x.T @ x / len(x) + 0.2 * np.eye(3), x.T @ y / len(x))
    np.testing.assert_allclose(one.server["model"][0].numpy(), law[:, 0], rtol=1e-6)
