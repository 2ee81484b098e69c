"""What all selections have in common, and what the engine makes of each of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from contract.small import engine, run
from support.selections import FLAT, K, S, make_selection, to_sets

from otafl.selection.base import find_lowest

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("name", ["uniform", "best_channel", "round_robin", "poisson"])
def test_fewer_are_free_than_wanted(name: str) -> None:
    free = np.zeros((S, K), bool)
    free[0, 2] = free[0, 4] = True
    made = make_selection(name, window=[10.0, 10.0], probability=[1.0, 1.0])
    assert to_sets(made.select_devices(free, 3, 0, FLAT)) == [[2, 4], []]


@pytest.mark.parametrize("count", [0, 3, 25])
def test_the_lowest_are_those_of_a_whole_sort(count: int) -> None:
    """Keys of five values, so that most are ties, and some that are not free."""
    key = np.random.default_rng(count).integers(5, size=(6, 20)).astype(float)
    key[key == 4.0] = np.inf
    expected = key.argsort(1, kind="stable")[:, :count]
    np.testing.assert_array_equal(find_lowest(key, count), expected)


def side_symbols(keys: Mapping[str, Any]) -> float:
    return float(run(engine(keys, trials=[0]), 1).means.take()["side_symbols"][0])


def test_side_information() -> None:
    """Beside a real a sender for its power: choosing by the channel takes the pilots of all four
    devices, of which the senders' are counted anyway; norms are one symbol each."""
    base = {"devices.participants": 2, "csi": {"name": "pilots", "length": 3}}
    senders = 2 * (1 + 3)
    for name in ("uniform", "round_robin"):
        assert side_symbols(base | {"devices.selection": name}) == senders
    for name in ("best_channel", "proportional_fair"):
        assert side_symbols(base | {"devices.selection": name}) == senders + 2 * 3
    low = {"name": "threshold", "min_snr_db": -200.0}
    assert side_symbols(base | {"devices.selection": low}) == senders + 2 * 3
    assert side_symbols(base | {"devices.selection": "update_norm"}) == senders + 4
    perfect = {"devices.participants": 2, "devices.selection": "best_channel"}
    assert side_symbols(perfect) == 2
