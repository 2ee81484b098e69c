"""`Algorithm.on_ack`: what a device does once it knows whether its update arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contract import probes
from contract.small import engine, run

from otafl.core.contracts import Context, DeliveredMasks, Payload, Tensors
from otafl.engine.assembly import Parts

pytestmark = pytest.mark.exact

BASE: dict[str, Any] = {"engine.dtype": "float64", "data.partition": "iid"}
LOSSY: dict[str, Any] = BASE | {
    "transport": "digital",
    "faults": {"crash_probability": 0.5},
}
SILENT: dict[str, Any] = BASE | {
    "channel": {"name": "rayleigh", "snr_db": 20.0},
    "power": {"name": "tci", "threshold": 0.5},
}


SLOW = {"name": "classes", "classes": [1.0 / 0.75, 1e3, 1e3, 1e3]}
"""Device 0 takes 0.75 s."""


@dataclass
class Settled:
    """What `on_ack` was given."""

    round: int
    trial: list[int]
    device: list[int]
    heard: list[bool]
    sent: list[float]
    steps: int


class Sender(probes.Probe):
    """Devices count the updates of theirs that were not heard, in a block of their own."""

    acknowledged_state = ("trained",)

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.settled: list[Settled] = []

    def on_ack(
        self, devices: Tensors, sent: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        cohort, (group,), (came,) = context.cohort, sent, delivered_masks
        rows = cohort.trial.tolist(), cohort.device.tolist(), came[:, 0].tolist()
        numbers = group.tensors["x"][:, 0].tolist()
        self.settled.append(Settled(context.round, *rows, numbers, len(self.heard)))
        return {"trained": devices["trained"] + 100.0 * ~came[:, :1]}


@pytest.mark.parametrize(("keys", "participants"), [(LOSSY, None), (SILENT, 3)])
def test_senders_see_whether_they_were_heard(
    keys: dict[str, Any], participants: int | None
) -> None:
    """In every round the rows are the slot's senders, `heard` is that of the link, the server has
    taken its step, and what is returned is the devices' state."""
    one = engine(keys | {"devices.participants": participants}, probe=Sender)
    method, lost, trained = one.parts.algorithm, np.zeros((3, 4)), np.zeros((3, 4))
    for t in range(6):
        one.run_round(t)
        now, sent = method.settled[-1], method.heard[-1].cohort
        assert (now.round, now.steps, len(method.settled)) == (t, t + 1, t + 1)
        assert now.trial == sent.trial.tolist()
        assert now.device == sent.device.tolist()
        assert now.sent == probes.of_rows(sent, t).tolist()
        came = np.array(now.heard)
        counts = np.bincount(np.array(now.trial)[came], minlength=3)
        assert one.means.take()["participants"].tolist() == counts.tolist()
        np.add.at(lost, (now.trial, now.device), ~came)
        np.add.at(trained, (now.trial, now.device), 1.0)
    assert 0 < lost.sum() < trained.sum()
    kept = one.devices.get_all()["trained"][..., 0].numpy()
    assert (kept == trained + 100.0 * lost).all()


def test_late_updates_settle_in_the_slot_that_they_reach() -> None:
    """Device 0 takes 0.75 s and slots open every 0.5 s, so its update of one round arrives in the
    next, and with it the news of that slot."""
    late = {"devices.compute": SLOW, "devices.deadline_s": 0.5, "devices.late": "next"}
    ideal = {"transport": "ideal", "devices.downlink_rate_bps": 1e12}
    one = run(engine(BASE | late | ideal, probe=Sender), 2)
    first, second = one.parts.algorithm.settled
    assert first.device == [1, 2, 3] * 3
    assert (second.round, second.device) == (1, [0, 1, 2, 3] * 3)
    assert all(first.heard + second.heard)


def test_an_update_that_misses_its_slot_settles_as_lost() -> None:
    """Dropped at the deadline of the round in which it was made."""
    late = {"devices.compute": SLOW, "devices.deadline_s": 0.5}
    ideal = {"transport": "ideal", "devices.downlink_rate_bps": 1e12}
    one = run(engine(BASE | late | ideal, probe=Sender), 2)
    settled = one.parts.algorithm.settled
    assert [(now.round, now.device, any(now.heard)) for now in settled] == [
        (0, [0] * 3, False),
        (0, [1, 2, 3] * 3, True),
        (1, [0] * 3, False),
        (1, [1, 2, 3] * 3, True),
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"codec": {"name": "topk", "keep": 0.5, "error_feedback": False}},
        {"faults": {"byzantine": 4, "attack": "scale", "scale": 7.0}},
    ],
    ids=["sparse", "attacked"],
)
def test_it_is_given_what_the_method_sent(keys: dict[str, Any]) -> None:
    """Whatever the codec and the attackers made of it."""
    one = run(engine(SILENT | keys, probe=Sender), 2)
    for t, now in enumerate(one.parts.algorithm.settled):
        assert now.sent == probes.of_rows(one.parts.algorithm.heard[t].cohort, t).tolist()
        assert 0 < sum(now.heard) < 12


def test_what_a_codec_remembers_counts_as_heard() -> None:
    """It will be sent, also where the device was too late for its slot."""
    late = {"devices.compute": SLOW, "devices.deadline_s": 0.5, "devices.downlink_rate_bps": 1e12}
    one = run(engine(SILENT | late | {"codec": "topk"}, probe=Sender), 3)
    heard = [came for now in one.parts.algorithm.settled for came in now.heard]
    assert len(heard) == 36
    assert all(heard)
