"""Whom the server has heard in a slot.

Mutations that make a test here fail: who is silent, lost or crashes heard; who crashes at the end
of the slot not heard; an update on the ideal route that speaks for a silent one; a device that
sends on the ideal route alone, or one group of several, not heard; nobody heard over the ideal
transport.
"""

from __future__ import annotations

import pytest
import torch
from support.digital_bench import Bench, amplitude
from support.limited_bench import send, table
from support.link_bench import WEIGHTS, bench, cohort, updates

from otafl.core import registry
from otafl.core.contracts import Group, Limits
from otafl.transport.report import Tally

pytestmark = pytest.mark.exact

K = 6
WHO = cohort(weight=WEIGHTS)
FREE = Group({"b": updates(K, 3)}, route="ideal", reason="a test")


@pytest.mark.parametrize("route", ["uplink", "ideal"])
@pytest.mark.parametrize("transport", registry.names("transport"))
def test_who_sends_is_heard(transport: str, route: str) -> None:
    """Over a channel that carries all, devices 0, 2, 3, 5; nobody of an empty payload."""
    sends = [True, False, True, True, False, True]
    link = bench("ci", transport=transport)
    group = Group({"a": updates(K, 4)}) if route == "uplink" else FREE
    _, report = link.deliver((group,), cohort(weight=WEIGHTS, sends=sends))
    assert report.heard.tolist() == [sends]
    _, report = link.deliver((), cohort(weight=WEIGHTS, sends=sends))
    assert report.heard.tolist() == [[False] * K]


def test_silent_devices_are_not_heard() -> None:
    """Truncated inversion: weak devices are silent, whatever comes on the ideal route; device 1
    sends there alone, device 2 in one of two groups."""
    link = bench("tci", (0, 1), threshold=0.5)
    x, who = updates(2 * K, 5), cohort((K, K), weight=WEIGHTS * 2)
    strong = link.channel.state(0).h.abs().square().flatten(1) >= 0.5
    assert 0 < strong.sum() < 2 * K
    both = Group({"a": x}), Group({"b": updates(2 * K, 3)}, route="ideal", reason="a test")
    _, report = link.deliver(both, who)
    assert torch.equal(report.heard, strong)
    without = torch.tensor([k for k in range(2 * K) if k != 1])
    less = torch.tensor([k for k in range(2 * K) if k not in (1, 2)])
    groups = Group({"a": x[less]}, rows=less), Group({"c": x[without]}, rows=without), both[1]
    _, report = link.deliver(groups, who)
    strong[0, 1] = True
    assert torch.equal(report.heard, strong)


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_who_crashes_is_not_heard(transport: str) -> None:
    link = bench("full", transport=transport)
    limits = Limits(sent=table([1.0, 0.999, 0.0, 1.0, 0.5, 1.0]))
    for payload in ((Group({"a": updates(K, 40)}),), (Group({"a": updates(K, 40)}), FREE)):
        _, report = send(link, payload, WHO, limits)
        assert report.heard.tolist() == [[True, False, False, True, False, True]]


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_who_has_no_energy_is_not_heard(transport: str) -> None:
    link = bench("full", transport=transport)
    limits = Limits(energy=table([1e9, 0.0, 1e9, 0.0, 1e9, 1e9]))
    _, report = send(link, (Group({"a": updates(K, 40)}), FREE), WHO, limits)
    assert report.heard.tolist() == [[True, False, True, False, True, True]]


def test_lost_packets_are_not_heard() -> None:
    """Scheme 10 has 1.328 bits a channel use, and a channel at SNR 1 carries one."""
    link = Bench([amplitude([1, 3, 1, 3])], rate="mcs", mcs_index=10)
    _, report = link.deliver(Group({"a": updates(4, 10)}))
    assert report.heard.tolist() == [[False, True, False, True]]


def test_a_slot_without_updates_has_heard_nobody() -> None:
    budget = bench("ci", (0, 1)).transport.setup.budget
    report = Tally(budget, K).report()
    assert report.heard.shape == (2, K)
    assert report.heard.dtype == torch.bool
    assert not report.heard.any()
    assert report.participants.tolist() == [0, 0]
