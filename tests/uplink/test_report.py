"""Whom the server has heard in a slot."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import WEIGHTS, draw_updates, make_bench, make_cohort, make_given

from otafl.core import registry
from otafl.core.contracts import Group, LinkReport
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench as Rigs

pytestmark = pytest.mark.exact

K = 6
WHO = make_cohort(weight=WEIGHTS)
FREE = Group({"b": draw_updates(K, 3)}, route="ideal", reason="a test")


def heard(report: LinkReport) -> list[list[list[bool]]]:
    """Of each group [S, K] who was heard, whole."""
    return [of_group().tolist() for of_group in report.delivered_mask_fns]


def test_who_sends_is_heard() -> None:
    """Over a channel that carries all, devices 0, 2, 3, 5, on both routes; nobody of an empty
    payload."""
    sends = [True, False, True, True, False, True]
    who, payload = (
        make_cohort(weight=WEIGHTS, sends=sends),
        (Group({"a": draw_updates(K, 4)}), FREE),
    )
    for transport in registry.list_names("transport"):
        link = make_bench("ci", transport=transport)
        assert heard(link.deliver(payload, who)[1]) == [[sends]] * 2, transport
        assert link.deliver((), who)[1].delivered_mask_fns == (), transport


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


def test_devices_are_silent_without_the_receivers_knowing() -> None:
    """They count in the mean, radiate nothing, take no time, and are not heard; where all are
    silent the server takes noise for their mean, and the round is no no-op."""
    point = {"power": "pre_scaler", "channel": {"name": "rayleigh", "snr_db": -5.0}}
    rig = Rigs().build_rig(3, 64, point)
    x = rig.draw_symbols(8, 0)
    channel = rig.link.channel.get_state(0)
    payload = (Group({"x": x}),)
    received, report = deliver(rig.link.transport, payload, rig.cohort, channel, 0)
    on_air = report.saved_tensors["p/0"][:, 0] != 0
    assert report.saved_tensors["active/0"].all()
    assert 0 < int(on_air.sum()) < on_air.numel()
    assert torch.equal(report.participants, on_air.sum(1).double())
    assert torch.equal(report.on_air_s > 0, on_air)
    assert torch.equal(report.energy_j > 0, on_air)
    assert torch.equal(report.delivered_mask_fns[0](), on_air)
    torch.testing.assert_close(received.group_weight[0], torch.ones(64).double())
    empty = ~on_air.any(1)
    assert empty.any()
    assert (received.mean[0]["x"][empty] != 0).all()
    assert received.any_delivered is None
