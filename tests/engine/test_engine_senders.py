"""Devices that train without sending.

Fails if: a device that does not send is aggregated, does not train, or uses up the uplink; the
senders are the same in all rounds.
"""

from __future__ import annotations

import pytest
import torch
from contract.small import engine, run

from otafl.scenario import ScenarioError

pytestmark = pytest.mark.exact


def test_senders_alone_are_aggregated_and_all_train() -> None:
    """The server's step is the mean of the senders' increments; train loss is everyone's."""
    keys = {"transport": "ideal", "engine.dtype": "float64"}
    everyone, some = engine(keys), engine(keys | {"devices.senders": 2})
    who = some.select_cohort(None, 0)
    assert [int(part.sum()) for part in who.transmit_mask.split(4)] == [2, 2, 2]
    before = everyone.server["model"].clone()
    broadcast = everyone.parts.algorithm.broadcast(everyone.server, who)
    (group,), _ = everyone.training.train_cohort(broadcast, everyone.select_cohort(None, 0), 0)
    weight = torch.where(who.transmit_mask, who.weight, 0.0).view(3, 4)
    weight = weight / weight.sum(1, keepdim=True)
    expected = torch.einsum("sk,skp->sp", weight, group.tensors["model"].view(3, 4, -1))
    run(some, 1)
    torch.testing.assert_close(some.server["model"], before + expected, rtol=1e-10, atol=1e-13)
    run(everyone, 1)
    ours, all_of_them = some.means.take(), everyone.means.take()
    torch.testing.assert_close(ours["train_loss"], all_of_them["train_loss"])
    assert ours["participants"].tolist() == [2.0] * 3
    assert not torch.equal(some.select_cohort(None, 1).transmit_mask, who.transmit_mask)


def test_more_senders_than_participants() -> None:
    with pytest.raises(ScenarioError, match=r"devices.senders: got 5, more than the 4 devices"):
        engine({"devices.senders": 5})
