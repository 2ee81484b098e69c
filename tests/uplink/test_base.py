"""The delivery of a payload by any scheme."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import draw_updates, make_bench, make_cohort

from otafl.core.contracts import Group, Payload
from otafl.core.errors import UserError
from otafl.uplink.base import deliver
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

FREE = Group({"b": draw_updates(6, 3)}, route="ideal", reason="a test")
PAID = Group({"a": draw_updates(6, 4)})


@pytest.mark.parametrize(
    ("payload", "carried"), [((), []), ((FREE,), []), ((FREE, PAID, FREE), [1])]
)
def test_groups_on_the_uplink_are_carried(
    payload: Payload, carried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, found = make_bench(), []
    carry = link.transport.transmit

    def watch(delivery: Delivery) -> None:
        found.extend(sent.index for sent in delivery.uplink)
        carry(delivery)

    monkeypatch.setattr(link.transport, "transmit", watch)
    received, report = deliver(link.transport, payload, make_cohort(), link.channel.get_state(0), 0)
    assert found == carried
    assert len(received.mean) == len(report.delivered_mask_fns) == len(payload)
    assert received.per_device is None
    assert float(report.symbols) == (4.0 if carried else 0.0)


def test_a_scheme_that_tells_devices_apart_gives_each_update() -> None:
    link = make_bench(transport="ideal")
    received, _ = deliver(link.transport, (PAID,), make_cohort(), link.channel.get_state(0), 0)
    assert received.per_device is not None
    assert torch.equal(received.per_device[0]["a"], PAID.tensors["a"])


def test_a_refused_payload_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    link = make_bench()

    def refuse(payload: Payload) -> None:
        raise UserError("no")

    monkeypatch.setattr(link.transport, "check_payload", refuse)
    with pytest.raises(UserError, match="no"):
        deliver(link.transport, (FREE,), make_cohort(), link.channel.get_state(0), 0)
