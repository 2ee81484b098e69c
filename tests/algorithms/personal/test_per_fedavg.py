"""Holds Per-FedAvg to numbers worked out by hand, and its second-order term against autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.prior_toy import (
    RATES,
    Whole,
    assert_counts_gradients,
    make_context,
    make_fedavg,
    make_per_fedavg,
    run_toy,
)
from torch import Tensor, nn

from otafl.core.contracts import Broadcast

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("method", "local"),
    [(make_fedavg(), [0.00499375, 0.00995000]), (make_per_fedavg(), [0.00498128, 0.00985101])],
    ids=["fedavg", "per_fedavg"],
)
def test_toy_numbers(method: Any, local: list[float]) -> None:
    assert run_toy(method)[0] == pytest.approx(local, abs=6e-9)


def test_per_fedavg_second_order_is_the_gradient_of_the_adapted_loss() -> None:
    """One step is held against autograd through the inner step; the difference is of order
    delta^2."""
    alpha, x, y = 0.4, *(getattr(Whole(1).draw_batch(0), name)[0] for name in ("x", "y"))
    start = torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        return nn.functional.cross_entropy(x @ w.T, y)

    w = start.clone().requires_grad_()
    (inner,) = torch.autograd.grad(loss(w), w, create_graph=True)
    (exact,) = torch.autograd.grad(loss(w - alpha * inner), w)
    sent = {}
    for hessian in ("none", "difference"):
        ours = make_per_fedavg(hessian=hessian)
        changes = RATES | {"personal_learning_rate": alpha, "learning_rate": 1.0}
        hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in changes.items()}
        broadcast = Broadcast({"model": start.reshape(1, 4).clone()}, per_device=True)
        _, (group,), _ = ours.run_local_update(broadcast, {}, make_context(hyper, 1))
        sent[hessian] = -group.tensors["model"].view(2, 2)
    torch.testing.assert_close(sent["difference"], exact, rtol=0, atol=1e-8)
    assert float((sent["none"] - exact).abs().max()) > 1e-2


@pytest.mark.parametrize(
    ("method", "count"), [(make_per_fedavg(), 2), (make_per_fedavg(hessian="difference"), 4)]
)
def test_gradients_of_a_step(method: Any, count: int) -> None:
    assert_counts_gradients(method, count)
