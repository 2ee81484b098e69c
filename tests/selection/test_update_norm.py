"""The largest updates, worked by hand, and what the engine makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract import probes
from contract.small import engine, run, scenario
from support.refusals import assert_refused
from support.selections import ALL, DOUBLE, FLAT, make_cohort, make_selection

from otafl.core.contracts import Broadcast, Cohort, Group, Payload, Tensors
from otafl.engine.engine import Engine
from otafl.scenario.errors import ScenarioError
from otafl.selection.selections import compute_squared_norms

pytestmark = pytest.mark.exact


def test_norms_of_what_is_sent_over_the_uplink() -> None:
    column = torch.arange(1.0, 6.0, dtype=DOUBLE)[:, None]
    rows = torch.tensor([3, 0, 0])
    payload: Payload = (
        Group({"x": column.repeat(1, 2), "y": column[:, :, None].repeat(1, 1, 3)}),
        Group({"z": column[:3]}, row_index=rows),
        Group({"m": 10 * column.repeat(1, 2)}, mask={"m": torch.tensor([[1.0, 0.0]] * 5)}),
        Group({"b": 100 * column}, route="ideal", reason="a test"),
    )
    twin = [5 * k**2 + 100 * k**2 for k in range(1, 6)]
    for row, value in zip(rows.tolist(), [1, 2, 3], strict=True):
        twin[row] += value**2
    assert compute_squared_norms(payload, make_cohort()).tolist() == twin


def test_the_largest_updates() -> None:
    made = make_selection("update_norm")
    assert made.select_devices(ALL, 2, 0, FLAT).all()

    def senders(who: Cohort, wanted: int) -> list[bool]:
        sends = made.select_transmitters(payload, who, wanted)
        assert sends is not None
        return sends.tolist()

    norms = torch.tensor([2.0, 3.0, 3.0, 1.0, 5.0], dtype=DOUBLE)[:, None]
    payload: Payload = (Group({"x": norms}),)
    assert senders(make_cohort(), 1) == [False, True, False, False, True]
    assert senders(make_cohort(), 2) == [False, True, True, True, True]
    assert all(senders(make_cohort(), 4))
    quiet = make_cohort([True, False, True, True, False])
    assert senders(quiet, 1) == [False, False, True, True, False]


class Widest(probes.Probe):
    """Device k's update has the norm (k + 1, or what `order` makes of it) sqrt(2)."""

    order = (1.0, 4.0, 2.0, 3.0)

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        rows = broadcast.tensors["x"].new_tensor(self.order)[cohort.device]
        return (Group({"x": rows[:, None].repeat(1, self.width)}),)


BY_NORM = {
    "devices.selection": "update_norm",
    "devices.participants": 2,
    "transport": "ideal",
    "data.partition": "iid",
    "engine.dtype": "float64",
}


def with_memory(one: Engine) -> Tensors:
    """The codec's memory after a round with the residual codec."""
    object.__setattr__(one.parts.link, "codec", probes.Residual(one.parts.streams))
    run(one, 1)
    return one.memory.get_all()


def test_only_the_largest_updates_are_sent() -> None:
    """Devices 1 and 3, of 75 samples each; all four train, and the codec sees the two alone."""
    one = run(engine(BY_NORM, probe=Widest), 1)
    (heard,) = one.parts.algorithm.heard
    assert heard.cohort.device.tolist() == [1, 3] * 3
    torch.testing.assert_close(one.server["x"], torch.full((3, 2), 3.5, dtype=DOUBLE))
    assert one.devices.get_all()["trained"].eq(1).all()
    assert (one.parts.clock.compute_spent_j()[..., 0] > 0).all()
    memory = with_memory(engine(BY_NORM, probe=Widest))["rest"]
    assert memory[:, :, 1].tolist() == [[0.0, 4.0, 0.0, 3.0]] * 3


def test_what_does_not_go_with_a_choice_after_the_work() -> None:
    late = {"devices.late": "next", "devices.deadline_s": 1.0}
    cases: list[tuple[Any, str]] = [
        ((late,), "'next' cannot be combined with devices.selection: 'update_norm'"),
        (
            ({"devices.senders": 1},),
            r"devices\.senders: cannot be combined with devices\.selection: 'update",
        ),
        (
            ({"devices.protocol": "quorum"},),
            r"devices\.protocol: 'quorum' cannot be combined with .* use protocol: rounds",
        ),
    ]
    assert_refused(lambda case: scenario(BY_NORM | case[0]), cases, ScenarioError)
