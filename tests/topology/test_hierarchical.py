"""Servers that average their models in a cloud."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.rounding import assert_agree

from otafl.topology.base import derive_trial_number

pytestmark = pytest.mark.exact

CLOUD = {"name": "hierarchical", "servers": 3, "cloud_every": 1}
WHOLE = {  # full batches, so that who draws what makes no difference
    "transport": "ideal",
    "engine.dtype": "float64",
    "data": {"name": "digits", "train_samples": 300, "partition": {"name": "lognormal"}},
    "training": {"rounds": 4, "batch_size": 300, "local_steps": 2, "eval_samples": 40},
}


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_a_cloud_in_every_round_is_a_star_of_all(algorithm: str) -> None:
    """Over ideal links, each device counting by its samples."""
    keys: dict[str, Any] = WHOLE | {"algorithm": algorithm}
    cloud = run(engine(keys | {"topology": CLOUD, "devices.count": 4}, [0]), 3)
    star = run(engine(keys | {"devices.count": 12}, [0]), 3)
    for name, block in star.server.items():
        expected = block.expand_as(cloud.server[name])
        torch.testing.assert_close(cloud.server[name], expected, rtol=1e-9, atol=1e-12)


def test_in_between_each_is_on_its_own() -> None:
    one = engine({"topology": CLOUD | {"cloud_every": 2}}, [0])
    start = one.server["model"].clone()
    assert torch.equal(start[0], start[2])
    run(one, 1)
    assert not torch.allclose(one.server["model"][0], one.server["model"][1])
    one.run_round(1)
    assert_agree(one.server["model"][0], one.server["model"][1])


def test_the_cloud_waits_for_all_and_takes_time() -> None:
    keys = {"devices.compute": {"name": "lognormal"}, "transport": "ideal"}
    each = [
        run(engine(keys, [derive_trial_number(0, c)]), 1).parts.clock.get_time_s()[0]
        for c in range(3)
    ]
    cloud = CLOUD | {"backhaul_rate_bps": 1e6, "deal": "each"}
    one = run(engine(keys | {"topology": cloud}, [0]), 1)
    bits = 32 * one.server["model"].shape[1]
    assert one.parts.clock.get_time_s() == pytest.approx(np.full(3, max(each) + 2 * bits / 1e6))
    assert one.parts.topology.bits.tolist() == [2.0 * bits] * 3
    assert min(each) < max(each)


def test_a_resumed_run_is_bit_equal() -> None:
    keys = {"topology": CLOUD | {"cloud_every": 2, "cross_gain_db": -10}}
    whole = run(engine(keys, [0, 1]), 4)
    first = engine(keys, [0, 1])
    first.parts.clock.journal = []
    run(first, 2)
    kept = first.state_dict()
    second = engine(keys, [0, 1])
    second.load_state_dict(kept)
    for t in (2, 3):
        second.run_round(t)
    assert torch.equal(second.server["model"], whole.server["model"])
    np.testing.assert_array_equal(second.parts.clock.get_time_s(), whole.parts.clock.get_time_s())
    assert second.parts.topology.bits.tolist() == whole.parts.topology.bits.tolist()
