"""Holds the counter that operations are held to, to numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from support.operations import Counted
from torch import Tensor

pytestmark = pytest.mark.exact

A, B = torch.randn(2, 3, 4), torch.randn(2, 4, 5)


def total(counted: Counted) -> tuple[float, float, float]:
    return counted.products, counted.decompositions, counted.elementwise


def test_products() -> None:
    """Two operations a multiplication; what they are added to is one more, a step of SGD two."""
    with Counted() as one:
        torch.bmm(A, B)
    assert total(one) == (2 * 2 * 3 * 4 * 5, 0, 0)
    with Counted() as one:
        torch.baddbmm(torch.zeros(2, 3, 5), A, B)
    assert total(one) == (240, 0, 30)
    with Counted() as one:
        torch.zeros(2, 3, 5).baddbmm_(A, B, alpha=-1.0)
    assert total(one) == (240, 0, 60)


X = torch.rand(7, 2) + 0.5


@pytest.mark.parametrize(
    ("done", "operations"),
    [
        (lambda x: x + x, 14),
        (lambda x: x.clone().add_(x, alpha=0.3), 28),
        (lambda x: torch.addcmul(x, x, x), 28),
        (lambda x: x.clone().addcmul_(x, x, value=-1.0), 28),
        (lambda x: x.clone().addcdiv_(x, x, value=0.5), 42),
        (lambda x: torch.lerp(x, 2 * x, 0.3), 14 + 42),
        (lambda x: torch.sigmoid(x), 42),
        (lambda x: torch.nn.functional.softplus(x), 42),
        (lambda x: x.square().sum(1), 28),
        (lambda x: torch.log_softmax(x, 1), 70),
        (lambda x: x.relu().sqrt(), 28),
        (lambda x: x.abs().sub_(0.7).clamp_min_(0.0).copysign_(x), 28),
        (lambda x: x.T.contiguous()[[1, 0]].neg(), 0),
        (lambda x: (x > 1).long() + 1, 0),
    ],
)
def test_elementwise(done: object, operations: float) -> None:
    """Fourteen numbers."""
    assert callable(done)
    with Counted() as one:
        done(X)
    assert total(one) == (0, 0, operations)


def test_what_is_ignored_and_what_is_unknown() -> None:
    with Counted() as one:
        with one.pause():
            torch.bmm(A, B) + 1.0
        torch.bmm(A, B)
    assert total(one) == (240, 0, 0)
    with Counted(), pytest.raises(AssertionError, match=r"erfinv is in no table"):
        torch.erfinv(Tensor([0.1]))
