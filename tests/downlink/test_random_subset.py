"""Downlink random_subset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from twins.setting import everyone

from otafl.core.contracts import Broadcast
from otafl.core.rng import Streams
from otafl.downlink.base import DownlinkSetup
from otafl.downlink.downlinks import RandomSubsetDownlink

pytestmark = pytest.mark.exact


COHORT = everyone(torch.full((2, 4), 0.25))


def test_downlink() -> None:
    """An exact number of values, the same however rows are chunked, sent to each device apart."""
    streams = Streams([3, 3], [0, 1])
    server = {"w": 1.0 + torch.rand(2, 20, 10), "b": 1.0 + torch.rand(2, 50)}
    before = {name: block.clone() for name, block in server.items()}
    setup = DownlinkSetup(np.array([1e3, 2e3]), None, streams, {})  # type: ignore[arg-type]
    downlink = RandomSubsetDownlink(RandomSubsetDownlink.Settings(keep=0.3), setup)
    arrival = downlink.send(Broadcast(server), COHORT, 5)
    bits = 75 * 32 + 250
    assert arrival.bits.tolist() == [4 * bits] * 2
    assert arrival.seconds.tolist() == [4 * bits / 1e3, 4 * bits / 2e3]
    assert arrival.num_coordinates == 250
    rows = arrival.expand_rows(COHORT, 0, 8).tensors
    flat = torch.cat([rows["w"].flatten(1), rows["b"]], 1)
    some = flat != 0
    assert some.sum(1).tolist() == [75] * 8
    assert len({tuple(row.tolist()) for row in some}) == 8
    assert 0.1 < some[:, 200:].double().mean() < 0.5
    whole = torch.cat([server["w"].flatten(1), server["b"]], 1)[COHORT.trial]
    assert torch.equal(flat, whole * some)
    assert all(torch.equal(server[name], block) for name, block in before.items())
    part = arrival.expand_rows(COHORT, 3, 6).tensors
    assert all(torch.equal(block, rows[name][3:6]) for name, block in part.items())
    later = downlink.send(Broadcast(server), COHORT, 6).expand_rows(COHORT, 0, 8).tensors
    assert not torch.equal(later["w"] != 0, rows["w"] != 0)
    assert downlink.send(
        Broadcast(server), COHORT.take(torch.tensor([0, 5, 6])), 5
    ).bits.tolist() == [
        bits,
        2 * bits,
    ]
