"""Devices drawn each by itself, by their laws."""

from __future__ import annotations

import pytest
from contract.small import engine, equal, run
from support.selections import ALL, FLAT, K, make_selection, to_sets

from otafl.core.errors import UserError
from otafl.scenario import load_scenario


@pytest.mark.exact
def test_the_free_and_no_more_than_wanted() -> None:
    every = make_selection("poisson", probability=[1.0, 1.0])
    free = ALL.copy()
    free[0, 1] = False
    assert to_sets(every.select_devices(free, K, 0, FLAT)) == [[0, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert (every.select_devices(ALL, 2, 0, FLAT).sum(1) == 2).all()


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
