"""Holds Per-FedAvg to numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from support.prior_toy import assert_counts_gradients, make_fedavg, make_per_fedavg, run_toy

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("method", "local"),
    [(make_fedavg(), [0.00499375, 0.00995000]), (make_per_fedavg(), [0.00498128, 0.00985101])],
    ids=["fedavg", "per_fedavg"],
)
def test_toy_numbers(method: Any, local: list[float]) -> None:
    assert run_toy(method)[0] == pytest.approx(local, abs=6e-9)


def test_gradients_of_a_step() -> None:
    assert_counts_gradients(make_per_fedavg(), 2)
