"""Whom the server has heard in a slot."""

from __future__ import annotations

import pytest
import torch
from support.digital_bench import Bench, compute_amplitude
from support.limited_bench import make_table, send
from support.link_bench import WEIGHTS, draw_updates, make_bench, make_cohort, make_given
from support.uplink_steps import close, delivery, on_air_of

from otafl.core import registry
from otafl.core.contracts import Group, LinkReport, TransmitLimits
from otafl.uplink.delivery import Tally
from otafl.uplink.report import collect_coefficients
from otafl.uplink.transmission import account

pytestmark = pytest.mark.exact

K = 6
WHO = make_cohort(weight=WEIGHTS)
FREE = Group({"b": draw_updates(K, 3)}, route="ideal", reason="a test")


def heard(report: LinkReport) -> list[list[list[bool]]]:
    """Of each group [S, K] who was heard, whole."""
    return [of_group().tolist() for of_group in report.delivered_mask_fns]


@pytest.mark.parametrize("route", ["uplink", "ideal"])
@pytest.mark.parametrize("transport", registry.list_names("transport"))
def test_who_sends_is_heard(transport: str, route: str) -> None:
    """Over a channel that carries all, devices 0, 2, 3, 5; nobody of an empty payload."""
    sends = [True, False, True, True, False, True]
    link = make_bench("ci", transport=transport)
    group = Group({"a": draw_updates(K, 4)}) if route == "uplink" else FREE
    _, report = link.deliver((group,), make_cohort(weight=WEIGHTS, sends=sends))
    assert heard(report) == [[sends]]
    _, report = link.deliver((), make_cohort(weight=WEIGHTS, sends=sends))
    assert report.delivered_mask_fns == ()


def test_silent_devices_are_not_heard() -> None:
    """Truncated inversion: weak devices are silent, but not on the ideal route; device 1 sends
    there alone, device 2 in one of two groups."""
    link = make_bench("tci", (0, 1), threshold=0.5)
    x, who = draw_updates(2 * K, 5), make_cohort((K, K), weight=WEIGHTS * 2)
    strong = link.channel.get_state(0).h.abs().square().flatten(1) >= 0.5
    assert 0 < strong.sum() < 2 * K
    both = Group({"a": x}), Group({"b": draw_updates(2 * K, 3)}, route="ideal", reason="a test")
    _, report = link.deliver(both, who)
    assert heard(report) == [strong.tolist(), [[True] * K] * 2]
    without = torch.tensor([k for k in range(2 * K) if k != 1])
    less = torch.tensor([k for k in range(2 * K) if k not in (1, 2)])
    groups = (
        Group({"a": x[less]}, row_index=less),
        Group({"c": x[without]}, row_index=without),
        both[1],
    )
    _, report = link.deliver(groups, who)
    second, first = strong.clone(), strong.clone()
    second[0, 1] = first[0, 1] = first[0, 2] = False
    assert heard(report) == [first.tolist(), second.tolist(), [[True] * K] * 2]


def test_a_device_is_heard_in_the_segments_in_which_it_is_on_air() -> None:
    """Truncated inversion over blocks of ten channel uses, of two groups of 24 and 12 reals."""
    link = make_given(make_bench("tci", threshold=0.5), blocks=4, block_symbols=10)
    state = link.channel.get_state(0)
    power = state.gain[0][:, None] * state.extend_to(36).abs().square()[0, :, 0, :, 0]
    strong = power >= 0.5
    assert 0 < strong.sum() < 4 * K
    groups = Group({"a": draw_updates(K, 24)}), Group({"b": draw_updates(K, 12)})
    received, report = link.deliver(groups, WHO)
    every = strong.repeat_interleave(10, 1)[:, :36]
    first, second = (of_group()[0] for of_group in report.delivered_mask_fns)
    assert torch.equal(torch.cat([first, second], 1), every)
    assert received.coordinate_weight is not None
    for blocks, came in zip(received.coordinate_weight, (first, second), strict=True):
        assert blocks is not None
        weight = (WHO.normalised_weight[:, None] * came).sum(0)
        torch.testing.assert_close(next(iter(blocks.values()))[0], weight)


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_who_crashes_is_not_heard(transport: str) -> None:
    """Over the air what was sent before it is; groups of 40 and 20 reals."""
    link = make_bench("full", transport=transport)
    limits = TransmitLimits(sent_fraction=make_table([1.0, 0.999, 0.0, 1.0, 0.5, 1.0]))
    groups = Group({"a": draw_updates(K, 40)}), FREE, Group({"c": draw_updates(K, 20)})
    _, report = send(link, groups, WHO, limits)
    reals = [40, 3, 20] if transport == "over_the_air" else [1, 1, 1]
    whole = [[reals[0], 0, 0, reals[0], 0, reals[0]], [reals[2], 0, 0, reals[2], 0, reals[2]]]
    if transport == "over_the_air":
        whole[0][1], whole[1][1], whole[0][4] = 40, 19, 30
    first, free, second = (counted(of_group()[0]) for of_group in report.delivered_mask_fns)
    assert [first, second] == whole
    assert free == [1] * K


def counted(heard: torch.Tensor) -> list[int]:
    """How many reals, the first ones of each row, of [K, P]; 1 for a row of [K]."""
    rows = heard.long() if heard.dim() == 2 else heard.long()[:, None]
    assert (rows.diff(dim=1) <= 0).all()
    return rows.sum(1).tolist()


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_who_has_no_energy_is_not_heard(transport: str) -> None:
    link = make_bench("full", transport=transport)
    limits = TransmitLimits(energy_budget=make_table([1e9, 0.0, 1e9, 0.0, 1e9, 1e9]))
    _, report = send(link, (Group({"a": draw_updates(K, 40)}), FREE), WHO, limits)
    assert heard(report) == [[[True, False, True, False, True, True]], [[True] * K]]


def test_lost_packets_are_not_heard() -> None:
    """Scheme 10 has 1.328 bits a channel use, and a channel at SNR 1 carries one."""
    link = Bench([compute_amplitude([1, 3, 1, 3])], rate="mcs", mcs_index=10)
    _, report = link.deliver(Group({"a": draw_updates(4, 10)}))
    assert heard(report) == [[[False, True, False, True]]]


def test_a_slot_without_updates_has_nobody_on_air() -> None:
    budget = make_bench("ci", (0, 1)).transport.budget
    report = Tally(budget, K).report()
    assert report.delivered_mask_fns == ()
    assert report.participants.tolist() == [0, 0]


def test_what_a_group_costs() -> None:
    """|p|^2 e is 4 * 5 and 1 * 18 over two channel uses at 2 Hz, half a joule each; three scalars
    of side information from each device."""
    made, on_air = on_air_of(delivery())
    account(on_air, made, 3)
    report = made.report()
    assert report.symbols.tolist() == [2.0]
    close(report.energy_j, [[10.0, 9.0]])
    close(report.power, [[10.0, 9.0]])
    assert report.on_air_s.tolist() == [[1.0, 1.0]]
    assert report.side_symbols.tolist() == [4.0 + 6.0]  # with two pilots a device
    assert report.participants.tolist() == [2.0]


def test_a_crash_costs_what_was_sent() -> None:
    """Device 1 sends one of two symbols, of energy 1."""
    limits = TransmitLimits(sent_fraction=make_table([0.5, 1.0]))
    made, on_air = on_air_of(delivery(limits=limits))
    account(on_air, made, 0)
    report = made.report()
    close(report.energy_j, [[2.0, 9.0]])
    assert report.on_air_s.tolist() == [[0.5, 1.0]]
    assert report.symbols.tolist() == [2.0]


def test_the_coefficients_are_those_on_air() -> None:
    """With the Gram matrix of (2, 4) and (2, -2)."""
    _, on_air = on_air_of(delivery())
    saved = collect_coefficients(on_air, gram=True)
    assert saved["gram/0"].tolist() == [[[[20.0, -4.0], [-4.0, 8.0]]]]
    close(saved["c/0"], [[[1.0, 1.0]]])
    close(saved["m/0"], [[[2.5, 9.0]]])
    assert saved["weight/0"].tolist() == [[0.25, 0.75]]
    assert "gram/0" not in collect_coefficients(on_air, gram=False)
