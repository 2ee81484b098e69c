"""`Algorithm.settle`: what a device does once it knows whether its update arrived.

Mutations that make a test here fail: devices that did not send settled, or those of another trial;
`heard` in the order of devices and not of rows; settled before the server's step, or under the
round in which a late update was made; the state that it returns not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, run
from torch import Tensor

from otafl.core.contracts import Blocks, Context
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


@dataclass
class Settled:
    """What `settle` was given."""

    round: int
    trial: list[int]
    device: list[int]
    heard: list[bool]
    steps: int


class Sender(probes.Probe):
    """Devices count the updates of theirs that were not heard, in a block of their own."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.settled: list[Settled] = []

    def settle(self, devices: Blocks, heard: Tensor, context: Context) -> Blocks:
        cohort = context.cohort
        rows = cohort.trial.tolist(), cohort.device.tolist(), heard.tolist()
        self.settled.append(Settled(context.round, *rows, len(self.heard)))
        lost = (~heard).to(devices["trained"].dtype)[:, None]
        return {"trained": devices["trained"] + 100.0 * lost}


@pytest.mark.parametrize("keys", [LOSSY, SILENT], ids=["packets lost", "silenced by the policy"])
@pytest.mark.parametrize("participants", [None, 3])
@pytest.mark.parametrize("place", ["memory", "host"])
def test_senders_see_whether_they_were_heard(
    keys: dict[str, Any], participants: int | None, place: str
) -> None:
    """In every round the rows are the slot's senders, `heard` is that of the link, the server has
    taken its step, and what is returned is the devices' state."""
    more = {"devices.participants": participants, "engine.device_state": place}
    one = engine(keys | more, probe=Sender)
    method, lost, trained = one.parts.algorithm, np.zeros((3, 4)), np.zeros((3, 4))
    for t in range(6):
        one.round(t)
        now, sent = method.settled[-1], method.heard[-1].cohort
        assert (now.round, now.steps, len(method.settled)) == (t, t + 1, t + 1)
        assert now.trial == sent.trial.tolist()
        assert now.device == sent.device.tolist()
        came = np.array(now.heard)
        counts = np.bincount(np.array(now.trial)[came], minlength=3)
        assert one.means.take()["participants"].tolist() == counts.tolist()
        np.add.at(lost, (now.trial, now.device), ~came)
        np.add.at(trained, (now.trial, now.device), 1.0)
    assert 0 < lost.sum() < trained.sum()
    kept = one.devices.blocks()["trained"][..., 0].numpy()
    assert (kept == trained + 100.0 * lost).all()


def test_who_is_not_heard_over_the_air_is_below_the_threshold() -> None:
    """Truncated inversion with perfect CSI silences |h|^2 < 0.5, and nobody else."""
    one = engine(SILENT | {"output.save_link": True}, probe=Sender)
    run(one, 4)
    for t, now in enumerate(one.parts.algorithm.settled):
        h = one.link[t]["h/0"][:, 0][now.trial, now.device]
        assert now.heard == (h.abs().square() >= 0.5).tolist()


def test_who_only_trains_does_not_settle() -> None:
    one = engine(LOSSY | {"devices.senders": 2}, probe=Sender)
    run(one, 3)
    for now in one.parts.algorithm.settled:
        assert np.bincount(now.trial).tolist() == [2, 2, 2]


def test_late_updates_settle_in_the_slot_that_they_reach() -> None:
    """Device 0 takes 0.75 s and slots open every 0.5 s, so its update of one round arrives in the
    next, and with it the news of that slot."""
    compute = {"name": "classes", "classes": [1.0 / 0.75, 1e3, 1e3, 1e3]}
    late = {"devices.compute": compute, "devices.deadline_s": 0.5, "devices.late": "next"}
    ideal = {"transport": "ideal", "devices.downlink_rate_bps": 1e12}
    one = run(engine(BASE | late | ideal, probe=Sender), 2)
    first, second = one.parts.algorithm.settled
    assert first.device == [1, 2, 3] * 3
    assert (second.round, second.device) == (1, [0, 1, 2, 3] * 3)
    assert all(first.heard + second.heard)


def test_a_method_without_it_keeps_its_state() -> None:
    """Nothing is looked up or written for methods that do not settle."""
    one = engine(LOSSY, probe=probes.Probe)
    run(one, 3)
    assert torch.equal(one.devices.blocks()["trained"], torch.full((3, 4, 1), 3.0).double())
