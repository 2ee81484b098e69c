"""What a delivery gathers before and while its groups go over the channel."""

from __future__ import annotations

import pytest
import torch
from support import uplink_steps
from support.link_bench import draw_updates, make_bench, make_cohort

from otafl.core.contracts import NO_LIMITS, Group, Payload
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

K = 6
WHO = make_cohort((K, K))


def nobody() -> torch.Tensor:
    return torch.zeros(2, K, dtype=torch.bool)


def delivery(payload: Payload, apart: bool = True) -> Delivery:
    link = make_bench("ci", (0, 1))
    budget, channel = link.transport.budget, link.channel.get_state(0)
    return Delivery(payload, WHO, channel, 0, NO_LIMITS, budget, apart)


def groups() -> tuple[Group, Group]:
    free = Group({"b": draw_updates(2 * K, 3)}, route="ideal", reason="a test")
    return Group({"a": draw_updates(2 * K, 4)}), free


def test_groups_come_in_the_payloads_order() -> None:
    """The second, on the ideal route, has arrived from the start and costs nothing."""
    one = delivery(groups())
    (sent,) = one.uplink
    assert (sent.index, list(sent.group.tensors)) == (0, ["a"])
    one.give(sent, {"a": torch.zeros(2, 4)}, torch.ones(2), delivered_fn=nobody)
    received = one.get_received()
    assert [list(mean) for mean in received.mean] == [["a"], ["b"]]
    expected = groups()[1].tensors["b"].view(2, K, 3).mean(1)
    torch.testing.assert_close(received.mean[1]["b"], expected)
    report = one.report()
    assert [of_group().any().item() for of_group in report.delivered_mask_fns] == [False, True]
    assert not report.symbols.any()
    assert not report.energy_j.any()
    assert sent.num_coordinates == 4


@pytest.mark.parametrize("apart", [False, True])
def test_updates_one_by_one(apart: bool) -> None:
    """Only where devices are told apart; `delivered_mask` where some are lost."""
    one = delivery(groups(), apart)
    came, each = torch.arange(2 * K) > 0, {"a": draw_updates(2 * K, 4)}
    one.give(
        one.uplink[0], {"a": torch.zeros(2, 4)}, torch.ones(2), each, came, delivered_fn=nobody
    )
    received = one.get_received()
    assert received.delivered_mask == (came, None)
    if not apart:
        assert received.per_device is None
        return
    assert received.per_device is not None
    assert received.per_device[0] is each
    assert torch.equal(received.per_device[1]["b"], groups()[1].tensors["b"])


def test_the_cost_is_a_sum_over_the_groups() -> None:
    """Two groups of 4 and 2 channel uses at 2 Hz; device 1 sends in the first one alone."""
    made = uplink_steps.delivery()
    one = torch.ones(1, dtype=torch.float64)
    row = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    made.add(symbols=4.0 * one, energy=12.0 * row, sent=4.0 * row.clamp_max(1.0), side=one)
    made.add(on_air=torch.tensor([[True, True]]))
    made.add_error(one[:, None], 2.0 * one[:, None])
    made.add(symbols=2.0 * one, energy=row - row[:, :1], sent=2.0 * (row > 1.0), side=3.0 * one)
    made.add(on_air=torch.tensor([[False, True]]))
    made.add_error(one[:, None] * 4.0, one[:, None] * 2.0)
    report = made.report()
    assert report.symbols.tolist() == [6.0]
    assert report.airtime_s.tolist() == [3.0]
    assert report.side_symbols.tolist() == [4.0]
    assert report.bits.tolist() == [0.0]
    assert report.participants.tolist() == [2.0]
    assert report.energy_j.tolist() == [[6.0, 12.5]]  # of 12 and 25, half a joule each
    assert report.power.tolist() == [[3.0, 25.0 / 6.0]]
    assert report.on_air_s.tolist() == [[2.0, 3.0]]
    assert report.nmse.tolist() == [5.0 / 8.0]
