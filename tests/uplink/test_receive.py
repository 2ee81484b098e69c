"""What the server makes of a sum, by hand."""

from __future__ import annotations

import pytest
import torch
from support.uplink_steps import F64, X, close, delivery, on_air_of

from otafl.core.contracts import Group, TransmitLimits
from otafl.uplink.coherent.over_the_air import superpose
from otafl.uplink.transmission import receive

pytestmark = pytest.mark.exact

SILENCE = torch.zeros(1, 2, dtype=F64)


def test_means_come_back() -> None:
    """(-1, 1) / 4 + 3 (2, -2) / 4 are deviations, and 3 / 4 is the mean of the means."""
    made, on_air = on_air_of(delivery(), centred=True)
    receive(on_air, *superpose(on_air, SILENCE), made)
    close(made.get_received().mean[0]["a"], [[2.0, -0.5]])
    assert float(made.report().nmse) == pytest.approx(0.0, abs=1e-20)


def test_means_of_silent_devices_do_not_come() -> None:
    """Device 2 alone, whose mean is 0, stands for all; the error is about the mean of both."""
    limits = TransmitLimits(energy_budget=torch.tensor([[0.0, 100.0]], dtype=F64))
    made, on_air = on_air_of(delivery(limits=limits), centred=True)
    receive(on_air, *superpose(on_air, SILENCE), made)
    received = made.get_received()
    close(received.mean[0]["a"], [[2.0, -2.0]])
    assert received.group_weight[0].tolist() == [0.75]  # type: ignore[union-attr]
    assert float(made.report().nmse) == pytest.approx(1.5**2 / (2.0**2 + 0.5**2))


def test_each_coordinate_is_divided_by_the_weight_that_knows_it() -> None:
    """Coordinate 2 is known to device 2 alone, of weight 3/4."""
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=F64)
    made, on_air = on_air_of(delivery(Group({"a": X}, mask={"a": mask})))
    receive(on_air, *superpose(on_air, SILENCE), made)
    received = made.get_received()
    close(received.mean[0]["a"], [[2.0, -2.0]])
    assert received.group_weight[0]["a"].tolist() == [[1.0, 0.75]]  # type: ignore[index,call-overload]


def test_the_error_is_over_the_error_free_aggregate() -> None:
    made, on_air = on_air_of(delivery())
    estimate, exact = torch.tensor([[3.0, 0.0]]).double(), torch.tensor([[2.0, 2.0]]).double()
    receive(on_air, estimate, exact, made)
    assert float(made.report().nmse) == pytest.approx((1 + 4) / 8)
    assert made.get_received().mean[0]["a"].tolist() == [[3.0, 0.0]]
