"""What a delivery gathers before and while its groups go over the channel.

Mutations that make a test here fail: means in the order in which they were given, the ideal route
charged or on the uplink, updates one by one from a transport that does not tell devices apart, a
trial that nothing came from taken for alive, rows that arrived lost, groups on the ideal route not
heard or the order of the groups lost.
"""

from __future__ import annotations

import pytest
import torch
from support.link_bench import bench, cohort, updates

from otafl.core.contracts import NO_LIMITS, Group, Payload
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

K = 6
WHO = cohort((K, K))


def nobody() -> torch.Tensor:
    return torch.zeros(2, K, dtype=torch.bool)


def delivery(payload: Payload, apart: bool = True) -> Delivery:
    link = bench("ci", (0, 1))
    budget, channel = link.transport.budget, link.channel.state(0)
    return Delivery(payload, WHO, channel, 0, NO_LIMITS, budget, apart)


def groups() -> tuple[Group, Group]:
    free = Group({"b": updates(2 * K, 3)}, route="ideal", reason="a test")
    return Group({"a": updates(2 * K, 4)}), free


def test_groups_come_in_the_payloads_order() -> None:
    """The second, on the ideal route, has arrived from the start and costs nothing."""
    one = delivery(groups())
    (sent,) = one.uplink
    assert (sent.index, list(sent.group.blocks)) == (0, ["a"])
    one.give(sent, {"a": torch.zeros(2, 4)}, torch.ones(2), heard=nobody)
    received = one.received()
    assert [list(mean) for mean in received.mean] == [["a"], ["b"]]
    expected = groups()[1].blocks["b"].view(2, K, 3).mean(1)
    torch.testing.assert_close(received.mean[1]["b"], expected)
    report = one.report()
    assert [of_group().any().item() for of_group in report.heard] == [False, True]
    assert not report.symbols.any()
    assert not report.energy_j.any()
    assert sent.num_coordinates == 4


@pytest.mark.parametrize("apart", [False, True])
def test_updates_one_by_one(apart: bool) -> None:
    """Only where devices are told apart; `came` where some are lost."""
    one = delivery(groups(), apart)
    came, each = torch.arange(2 * K) > 0, {"a": updates(2 * K, 4)}
    one.give(one.uplink[0], {"a": torch.zeros(2, 4)}, torch.ones(2), each, came, heard=nobody)
    received = one.received()
    assert received.came == (came, None)
    if not apart:
        assert received.each is None
        return
    assert received.each is not None
    assert received.each[0] is each
    assert torch.equal(received.each[1]["b"], groups()[1].blocks["b"])


def test_alive_is_who_got_something() -> None:
    one = delivery(groups())
    (sent,) = one.uplink
    assert one.received().alive is None
    one.note_delivered(sent, torch.tensor([0.0, 0.5], dtype=torch.float64))
    assert one.received().alive.tolist() == [False, True]
    one.note_delivered(sent, torch.tensor([0.0, 0.0], dtype=torch.float64))
    assert one.received().alive.tolist() == [False, True]
    one.note_delivered(sent)
    assert one.received().alive is None
