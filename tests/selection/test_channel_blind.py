"""Selections at random and in turn, by hand and against a twin written out."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine, equal, run
from support.selections import ALL, DOUBLE, FLAT, K, S, make_selection, to_sets

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.scenario import load_scenario


@pytest.mark.twin
def test_uniform_takes_the_lowest_draws() -> None:
    free = ALL.copy()
    free[0, [1, 3]] = False
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(make_selection("uniform").select_devices(free, 2, round, FLAT))
        for trial in range(S):
            order = sorted(np.nonzero(free[trial])[0], key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.exact
def test_a_round_in_which_nobody_is_drawn() -> None:
    keys = {"devices.selection": {"name": "poisson", "probability": 1e-9}}
    one = engine(keys)
    before = {name: block.clone() for name, block in one.server.items()}
    run(one, 2)
    equal(one.server, before)
    assert one.means.take()["participants"].tolist() == [0.0] * 3


@pytest.mark.exact
def test_a_number_of_participants_is_no_sampling() -> None:
    devices = {"count": 5, "participants": 3, "selection": "poisson"}
    load_scenario({"name": "x", "devices": devices})
    with pytest.raises(UserError, match=r"devices\.participants: got 3; with privacy\.clip"):
        load_scenario({"name": "x", "devices": devices, "privacy": {"clip": 1.0}})


@pytest.mark.exact
def test_round_robin_in_turn() -> None:
    made = make_selection("round_robin")
    rounds = [to_sets(made.select_devices(ALL, 3, t, FLAT))[1] for t in range(5)]
    assert rounds == [[0, 1, 2], [0, 3, 4], [1, 2, 3], [0, 1, 4], [2, 3, 4]]


@pytest.mark.exact
def test_round_robin_lets_a_busy_device_go_first_once_it_is_free() -> None:
    """Device 0 is busy in the first two rounds; trial 1 is as ever."""
    made = make_selection("round_robin")
    busy = ALL.copy()
    busy[0, 0] = False
    rounds = [
        made.select_devices(free, 2, t, FLAT) for t, free in enumerate([busy, busy, ALL, ALL])
    ]
    assert [to_sets(one)[0] for one in rounds] == [[1, 2], [3, 4], [0, 1], [2, 3]]
    assert [to_sets(one)[1] for one in rounds] == [[0, 1], [2, 3], [0, 4], [1, 2]]
    made = make_selection("round_robin")
    alone = np.tile(np.arange(K) == 3, (S, 1))
    assert to_sets(made.select_devices(alone, 2, 0, FLAT)) == [[3], [3]]
    assert to_sets(made.select_devices(ALL, 2, 1, FLAT)) == [[0, 1], [0, 1]]
