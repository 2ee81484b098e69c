"""Minibatches: against a plain looped twin, and the same whatever else is drawn with them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.data import training_data
from otafl.data.device_splits import pack
from otafl.data.training_data import TrainingData, choose

pytestmark = pytest.mark.exact

SEED = 3


def everybody(trials: int, num_devices: int) -> Cohort:
    pair = torch.arange(trials * num_devices)
    return cohort_of(pair // num_devices, pair % num_devices, trials, num_devices)


def cohort_of(trial: Any, device: Any, trials: int, num_devices: int) -> Cohort:
    trial, device = torch.as_tensor(trial), torch.as_tensor(device)
    zero = torch.zeros_like(trial)
    counts = tuple(torch.bincount(trial, minlength=trials).tolist())
    ones = torch.ones(len(trial))
    return Cohort(trial, device, ones, zero, zero, zero, ones.bool(), counts, num_devices)


def some_data(
    sizes: list[list[int]], batch: int, steps: int = 2, trials: list[int] | None = None
) -> tuple[TrainingData, list[list[np.ndarray]]]:
    """Devices of the given sizes [S][K] over 200 samples whose pixel is their number."""
    numbers = trials or list(range(len(sizes)))
    parts = []
    for s, row in zip(numbers, sizes, strict=True):
        order = np.random.default_rng(s).permutation(200)
        parts.append(np.split(order, np.cumsum(row))[:-1])
    index, count = (torch.from_numpy(a) for a in pack(parts))
    x = torch.arange(200.0)[:, None] * torch.tensor([1.0, 2.0])
    streams = Streams([SEED] * len(sizes), numbers)
    return TrainingData(x, torch.arange(200) % 7, index, count, 7, streams, batch, steps), parts


def floyd(uniform: list[float], count: int) -> list[int]:
    """Floyd's algorithm as its paper writes it."""
    picked: list[int] = []
    for i, u in enumerate(uniform):
        j = count - len(uniform) + i
        t = int(u * (j + 1))
        picked.append(j if t in picked else t)
    return picked


@pytest.mark.parametrize("compiled", [False, True])
def test_positions_are_those_of_the_paper(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(training_data, "get_kernel", lambda device: None)
    uniform, count = torch.rand(3, 50, 6), torch.randint(6, 12, (50,))
    wanted = [
        [floyd(*one) for one in zip(rows, count.tolist(), strict=True)] for rows in uniform.tolist()
    ]
    assert choose(uniform, count).tolist() == wanted


@pytest.mark.twin
def test_looped_twin() -> None:
    sizes, batch = [[9, 30, 12], [50, 7, 8]], 5
    data, parts = some_data(sizes, batch)
    streams = Streams([SEED] * 2, [0, 1])
    for round, step, draw in product([0, 7, 70], [0, 1], [0, 1, 4]):
        got = data.select_cohort(round, everybody(2, 3)).draw_batch(step, draw)
        assert got.x.shape == (6, batch, 2)
        assert got.weight is None
        purpose = f"minibatch/{draw}" if draw else "minibatch"
        for row, (s, k) in enumerate(product(range(2), range(3))):
            pair = torch.tensor([s]), torch.tensor([k])
            uniform = streams.draw_device_uniform(purpose, (round << 32) + step, *pair, (batch,))
            wanted = parts[s][k][floyd(uniform[0].tolist(), sizes[s][k])]
            assert got.x[row, :, 0].tolist() == wanted.tolist()
            assert got.x[row, :, 1].tolist() == (2 * wanted).tolist()
            assert got.y[row].tolist() == (wanted % 7).tolist()


def test_a_small_device_uses_all_it_has() -> None:
    data, parts = some_data([[3, 40, 1, 5]], 5)
    for round in range(3):
        got = data.select_cohort(round, everybody(1, 4)).draw_batch(1)
        third = float(torch.tensor(1.0) / 3)
        assert got.weight is not None
        assert got.weight[0].tolist() == [third] * 3 + [0, 0]
        assert got.weight[1].tolist() == [float(torch.tensor(0.2))] * 5
        assert got.weight[2].tolist() == [1, 0, 0, 0, 0]
        assert got.x[0, :3, 0].tolist() == parts[0][0].tolist()
        assert set(got.x[2, :, 0].tolist()) == set(parts[0][2].tolist())
        assert set(got.x[3, :, 0].tolist()) == set(parts[0][3].tolist())
        assert len(set(got.x[1, :, 0].tolist())) == 5
    # A small neighbour changes the weights' form, not the samples.
    large = some_data([[3, 40, 1, 5]], 1)[0].select_cohort(0, everybody(1, 4)).draw_batch(0)
    assert large.weight is None


def test_labels_are_flipped_and_counted_flipped() -> None:
    work = some_data([[4, 5, 3]], 2)[0].select_cohort(0, everybody(1, 3))
    mask = torch.tensor([True, False, True])
    false, last = work.flip_labels(mask), work.count_classes().shape[1] - 1
    for true, other in (
        (work.draw_batch(0), false.draw_batch(0)),
        (work.load_full_batch(), false.load_full_batch()),
    ):
        assert torch.equal(other.x, true.x)
        assert torch.equal(other.y[[0, 2]], last - true.y[[0, 2]])
        assert torch.equal(other.y[1], true.y[1])
    counts = work.count_classes()
    assert torch.equal(false.count_classes()[[0, 2]], counts[[0, 2]].flip(1))
    few = false.take(torch.tensor([1, 2]))
    assert torch.equal(few.count_classes(), torch.stack([counts[1], counts[2].flip(0)]))


@pytest.mark.parametrize("batch", [12, 13, 100_000])
def test_full_batches_are_no_wider_than_the_samples(batch: int) -> None:
    """Each device gives all its samples in their order, without a draw."""
    data, parts = some_data([[9, 12, 3]], batch)
    got = data.select_cohort(0, everybody(1, 3)).draw_batch(1)
    assert got.x.shape == (3, 12, 2)
    assert got.weight is not None
    for row, size in enumerate([9, 12, 3]):
        samples = got.x[row, :size, 0].tolist()
        assert samples == parts[0][row].tolist()
        assert torch.equal(got.weight[row], (torch.arange(12) < size) / size)
