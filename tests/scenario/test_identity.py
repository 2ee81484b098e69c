"""Hashes and stacks."""

from __future__ import annotations

from typing import Any

import h5py
import pytest
from support.scenarios import LARGE, ROOT, SCENARIO_FILES, make_scenario

from otafl.core.settings import declare_stackable
from otafl.csi.base import Csi
from otafl.scenario import (
    compute_scenario_hash,
    load_scenario,
    make_stack_key,
    restore_tree,
)

pytestmark = pytest.mark.exact

STUDIES = ROOT / "studies"


@pytest.mark.parametrize(
    ("change", "together"),
    [
        ({"channel": {"snr_db": 3}}, True),
        ({"channel": {"path_loss_db": 80, "tx_power_dbm": 10}}, False),
        ({"seed": 5}, True),
        ({"power": {"gain_target": "energy"}}, False),
        ({"training": {"rounds": 11}}, False),
    ],
)
def test_stack_key(change: dict[str, Any], together: bool) -> None:
    first = make_stack_key(make_scenario(channel={"snr_db": 0}))
    second = make_stack_key(make_scenario(**{"channel": {"snr_db": 0}} | change))
    assert (first == second) is together


class Lifted(Csi):
    class Settings(Csi.Settings):
        lift: float | None = declare_stackable(None)

    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h

    def estimate_paths(self, paths: Any, gain: Any, round: int) -> None:
        return None


def test_an_absent_number_of_a_users_class_is_apart_from_a_given_one() -> None:
    name = f"{__name__}:Lifted"
    absent, null, half, whole = (
        make_stack_key(make_scenario(csi={"name": name, **keys}))
        for keys in ({}, {"lift": None}, {"lift": 0.5}, {"lift": 1.0})
    )
    assert absent == null != half == whole


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "y"}, True),
        ({"engine": {"threads": 1, "device": "cpu"}}, True),
        ({"output": {"folder": "elsewhere"}}, True),
        ({"power": {"name": "gbma"}}, True),
        ({"seed": 1}, False),
        ({"output": {"save_link": True}}, False),
        ({"channel": {"snr_db": 20}}, True),  # which holds without it
        ({"channel": {"snr_db": 19}}, False),
        ({"sweep": {"seed": [0]}}, False),
    ],
)
def test_scenario_hash(change: dict[str, Any], same: bool) -> None:
    assert (
        compute_scenario_hash(make_scenario()) == compute_scenario_hash(make_scenario(**change))
    ) is same


def test_a_study_may_be_moved_with_its_files() -> None:
    here, there, other = (
        make_scenario(channel={"name": "trace", "path": path})
        for path in ("/a/measured.npy", "/b/measured.npy", "/a/drawn.npy")
    )
    assert compute_scenario_hash(here) == compute_scenario_hash(there)
    assert compute_scenario_hash(here) != compute_scenario_hash(other)


@pytest.mark.slow
def test_committed_results_are_of_todays_scenarios() -> None:
    """By the scenario that a result contains, and by that of its file."""
    files = {path.stem: path for path in SCENARIO_FILES}
    others = []
    for file in STUDIES.glob("*/data/*.nc"):
        with h5py.File(file) as opened:
            stored = dict(opened.attrs)
        same = compute_scenario_hash(load_scenario(restore_tree(stored))) == stored["scenario_hash"]
        if file.stem not in LARGE:
            now = compute_scenario_hash(load_scenario(files[stored["title"]]))
            same &= now == stored["scenario_hash"]
        if not same:
            others.append(file.name)
    assert others == []


def test_components_of_an_axis_count_with_their_defaults() -> None:
    """Text and mapping of a component are one, and so are a default that is given and one that is
    not; another value, or another order of the axes, is not.
    """
    rate = load_scenario({"name": "s", "algorithm": "fedprox"}).algorithm.learning_rate
    named = {"algorithm": ["fedavg", {"name": "fedprox"}], "seed": [1]}
    given = named | {"algorithm": ["fedavg", {"name": "fedprox", "learning_rate": rate}]}
    other = named | {"algorithm": ["fedavg", {"name": "fedprox", "learning_rate": 2 * rate}]}
    text, turned = named | {"algorithm": ["fedavg", "fedprox"]}, dict(reversed(named.items()))
    hashes = [
        compute_scenario_hash(make_scenario(sweep=one))
        for one in (named, text, given, other, turned)
    ]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes)) == 3
