"""Servers that share a band, and a cloud over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from support.refusals import assert_refused
from support.rounding import SINGLE, assert_agree

from otafl.topology.base import derive_trial_number

pytestmark = pytest.mark.exact


CELLS = {"name": "cells", "servers": 3}


@pytest.mark.parametrize("algorithm", ["fedavg", "fedrlr_plus"])
def test_who_hears_nobody_is_a_run_of_its_own(algorithm: str) -> None:
    """That of its derived trial, clock included; the first server's is the star's."""
    keys: dict[str, Any] = {"algorithm": algorithm, "devices.compute": {"name": "lognormal"}}
    cells = run(engine(keys | {"topology": CELLS | {"deal": "each"}}, [1]), 2)
    alone = run(engine(keys, [derive_trial_number(1, server) for server in range(3)]), 2)
    assert derive_trial_number(1, 0) == 1
    assert_agree(cells.server, alone.server, tolerance=2 * SINGLE)  # after two rounds
    for method in ("get_time_s", "compute_spent_j"):
        found, expected = (getattr(one.parts.clock, method)() for one in (cells, alone))
        assert_agree(found, expected, method, tolerance=SINGLE)


def test_the_data_are_dealt_out_once() -> None:
    """To all devices of all servers: no sample twice, and all of them."""
    one = engine({"topology": CELLS, "data.partition": "iid"}, [0])
    held = one.parts.samples.training_data
    places = [held.index[cell, : held.count[cell]] for cell in range(len(held.count))]
    assert len(torch.cat(places)) == len(torch.cat(places).unique()) == 300
    anew = engine({"topology": CELLS | {"deal": "each"}, "data.partition": "iid"}, [0])
    assert int(anew.parts.samples.training_data.count.sum()) == 900


def test_slots_open_together() -> None:
    """That of the last server, whose devices are the slowest; alone each opens its own."""
    near = CELLS | {"cross_gain_db": -10}
    slow = {"devices.compute": {"name": "lognormal"}, "topology": near}
    one = engine(slow, [0])
    assert one.parts.clock.together == 3
    run(one, 2)
    now = one.parts.clock.get_time_s()
    assert (now == now[0]).all()
    each = [
        run(engine(slow | {"topology": "star"}, [derive_trial_number(0, c)]), 1) for c in range(3)
    ]
    first = run(engine(slow | {"topology": near | {"deal": "each"}}, [0]), 1)
    own = np.array([other.parts.clock.get_time_s()[0] for other in each])
    assert first.parts.clock.get_time_s() == pytest.approx(np.full(3, own.max()))
    assert own.min() < own.max()


def test_a_part_of_the_band() -> None:
    """With reuse 3 of three servers, symbols last three times as long, and the noise is a third."""
    whole = engine({"topology": CELLS | {"cross_gain_db": 0}}, [0])
    parts = engine({"topology": CELLS | {"cross_gain_db": 0, "reuse": 3}}, [0])
    before, after = whole.parts.link.budget, parts.parts.link.budget
    torch.testing.assert_close(after.bandwidth_hz, before.bandwidth_hz / 3)
    torch.testing.assert_close(after.budget, 3 * before.budget)
    torch.testing.assert_close(after.tx_power_w, before.tx_power_w)
    assert whole.parts.link.transport.neighbours is not None
    assert parts.parts.link.transport.neighbours is None


def test_impossible_layouts() -> None:
    cases = [
        ({"servers": 5}, r"got 5; must be i\^2"),
        ({"servers": 7, "reuse": 3}, "got 3, with which cells on the same part of the band touch"),
        ({"servers": 7, "site_distance_m": 100}, "has no cell; use cross_gain_db, or"),
    ]
    refused: list[tuple[Any, str]] = [
        (({"topology": {"name": "cells"} | keys},), said) for keys, said in cases
    ]
    near = {"name": "cells", "servers": 7, "site_distance_m": 60}
    foot = "got 60; must be at least 110, so that devices"
    refused.append((({"topology": near, "channel": "umi"},), foot))
    assert_refused(lambda case: scenario(case[0]), refused)


def test_what_does_not_go_with_neighbours() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"transport": "digital"}, "'digital' does not support inter-cell interference"),
        ({"impairments.clip_db": 3}, "impairments.clip_db: does not support inter-cell"),
        (
            {"channel": "umi"},
            "got -10, but gains in a cell follow from the positions of its devices",
        ),
    ]
    near = {"topology": CELLS | {"cross_gain_db": -10}}
    refused = [((near | keys,), said) for keys, said in cases]
    assert_refused(lambda case: scenario(case[0]), refused)


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
