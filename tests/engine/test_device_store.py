"""Rows of devices that have taken part, against one table of all devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Tensors
from otafl.engine import device_store
from otafl.engine.device_store import DeviceStore

pytestmark = pytest.mark.exact

S, K = 2, 40
CPU = torch.device("cpu")


def starts() -> Tensors:
    """A block of which each trial has a start, and a number."""
    return {"w": torch.tensor([1.0, 2.0]).view(S, 1, 1).expand(S, 1, 3), "n": torch.zeros(S, 1)}


def store(hands_over: bool = True) -> DeviceStore:
    made = DeviceStore(S, K, CPU, hands_over)
    made.add(starts())
    return made


def cohort(*devices: list[int]) -> Cohort:
    """Devices of each trial."""
    pairs = [(s, k) for s, some in enumerate(devices) for k in some]
    trial, device = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
    counts = tuple(map(len, devices))
    return Cohort.create(trial, device, torch.ones(len(trial)), counts, K)


def random_cohort(generator: np.random.Generator, most: int) -> Cohort:
    chosen = (
        sorted(generator.choice(K, generator.integers(most + 1), replace=False).tolist())
        for _ in range(S)
    )
    return cohort(*chosen)


class Dense:
    """One row for each device from the start."""

    def __init__(self) -> None:
        self.table = {n: b.expand(S, K, *b.shape[2:]).clone() for n, b in starts().items()}

    def get_rows(self, some: Cohort) -> Tensors:
        return {name: block[some.trial, some.device] for name, block in self.table.items()}

    def put(self, some: Cohort, rows: Tensors) -> None:
        for name, block in rows.items():
            self.table[name][some.trial, some.device] = block


def work(one: Any, some: Cohort) -> None:
    """Change each row by its own numbers, so that all devices come to differ."""
    rows = {name: block.clone() for name, block in one.get_rows(some).items()}
    rows["w"] = rows["w"] * 1.5 + some.flat_index[:, None]
    rows["n"] = rows["n"] + 1.0
    one.put(some, rows)


def equal(one: Tensors, other: Tensors) -> None:
    assert one.keys() == other.keys()
    for name, block in one.items():
        assert torch.equal(block, other[name]), name


@pytest.mark.parametrize("most", [5, 25, K])
def test_rows_are_those_of_a_table_of_all(most: int) -> None:
    """Few devices at a time, which get rows one by one; many, after which all have one; and all of
    them now and then, whose tables change hands."""
    generator = np.random.default_rng(most)
    sparse, dense, came = store(), Dense(), set()
    for t in range(12):
        every = most == K and t % 3 == 2
        some = cohort([*range(K)], [*range(K)]) if every else random_cohort(generator, most)
        equal(sparse.get_rows(some), dense.get_rows(some))
        work(sparse, some), work(dense, some)
        came |= set(some.flat_index.tolist())
        assert sparse.num_allocated == (len(came) if 2 * len(came) <= S * K else S * K)
        equal(sparse.get_all(), dense.table)


def test_a_block_that_comes_later_begins_at_its_start() -> None:
    one = store(hands_over=False)
    work(one, cohort([7], [2]))
    one.add({"late": torch.tensor([3.0, 4.0]).view(S, 1)})
    assert one.get_rows(cohort([7, 9], [2]))["late"].tolist() == [3.0, 3.0, 4.0]


@pytest.mark.parametrize("most", [3, 30])
def test_it_goes_on_from_what_was_kept(most: int) -> None:
    generator = np.random.default_rng(1)
    one, dense = store(hands_over=False), Dense()
    for _ in range(4):
        some = random_cohort(generator, most)
        work(one, some), work(dense, some)
    again = DeviceStore(S, K, CPU)  # as the engine makes a codec's, before any block
    again.load_state_dict(one.state_dict())
    again.add(starts())
    assert again.num_allocated == one.num_allocated
    for _ in range(4):
        some = random_cohort(generator, most)
        work(again, some), work(dense, some)
        equal(again.get_all(), dense.table)


def test_what_is_tested_is_the_start_and_who_has_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = store()
    work(one, cohort([5, 30], [])), work(one, cohort([7], [6]))
    blocks, whose = one.get_distinct(model_coordinates=4)
    assert whose is None
    assert blocks["w"].shape == (S, K, 3)
    monkeypatch.setattr(device_store, "MODELS_CHUNK", 4 * S * K - 1)
    some, whose = one.get_distinct(model_coordinates=4)
    assert isinstance(whose, Tensor)
    assert some["w"].shape == (S, 4, 3)  # the start and three, of the second trial one
    equal({n: b.flatten(0, 1)[whose].view_as(blocks[n]) for n, b in some.items()}, blocks)
    monkeypatch.setattr(device_store, "MODELS_CHUNK", 4 * S * K)
    assert one.get_distinct(model_coordinates=4)[1] is None
    monkeypatch.setattr(device_store, "MAX_COMPARED", S * K - 1)
    assert torch.equal(one.get_distinct(model_coordinates=4)[1], whose)
