"""Servers that share a band: each is a run of its own but for what it hears, the clock of their
slots, and the part of the band that it has.
"""

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


def test_one_cell_is_a_star() -> None:
    star = run(engine({}, [0]), 2)
    cells = run(engine({"topology": {"name": "cells", "servers": 1, "cross_gain_db": 0}}, [0]), 2)
    assert_agree(cells.server, star.server, tolerance=2 * SINGLE)  # after two rounds


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
