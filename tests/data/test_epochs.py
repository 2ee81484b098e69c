"""Minibatches of epochs: every sample once a pass, in an order that nothing beside it changes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from otafl.core.contracts import Batch, Cohort
from otafl.core.rng import Streams, derive_words
from otafl.data.device_splits import pack
from otafl.data.training_data import TrainingData

pytestmark = pytest.mark.exact

SEED, BATCH, EPOCHS = 3, 4, 3


def make_data(sizes: list[list[int]]) -> TrainingData:
    """Devices of the given sizes [S][K] over samples whose pixel is their number."""
    parts = [np.split(np.arange(200), np.cumsum(row))[:-1] for row in sizes]
    index, count = (torch.from_numpy(a) for a in pack(parts))
    x, streams = torch.arange(200.0)[:, None], Streams([SEED] * len(sizes), range(len(sizes)))
    y = torch.arange(200) % 7
    return TrainingData(x, y, index, count, 7, streams, BATCH, 1, epochs=EPOCHS)


def choose_rows(trial: list[int], device: list[int], sizes: list[list[int]]) -> Cohort:
    counts = tuple(trial.count(s) for s in range(len(sizes)))
    share = torch.ones(len(trial))
    return Cohort.create(torch.tensor(trial), torch.tensor(device), share, counts, len(sizes[0]))


def list_samples(batch: Batch, row: int) -> list[int]:
    """The samples of a row that count, whose weights must be equal and sum to one."""
    if batch.weight is None:
        return batch.x[row, :, 0].long().tolist()
    held = batch.weight[row] > 0
    assert torch.allclose(batch.weight[row, held], 1.0 / held.sum())
    return batch.x[row, held, 0].long().tolist()


def test_looped_twin() -> None:
    """Devices of 9, 12 and 10 samples take three steps a pass; the last one is short."""
    sizes = [[9, 12, 10], [11, 9, 12]]
    data = make_data(sizes)
    cohort = choose_rows([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], sizes)
    streams = Streams([SEED, SEED], [0, 1])
    for round, draw in product([0, 70], [0, 2]):
        local = data.select_cohort(round, cohort)
        assert local.steps == 3 * EPOCHS
        for row, (s, k) in enumerate(product(range(2), range(3))):
            first = sum(sizes[s][:k])
            for epoch in range(EPOCHS):
                tick = torch.tensor([(round << 32) + epoch])
                purpose = f"epoch/{draw}" if draw else "epoch"
                pair = torch.tensor([s]), torch.tensor([k])
                key = streams.derive_device_keys(purpose, tick, *pair)[0]
                words = derive_words(key, 0, sizes[s][k])[0].numpy()
                order = (first + np.argsort(words, kind="stable")).tolist()
                for place in range(3):
                    batch = local.draw_batch(3 * epoch + place, draw)
                    assert list_samples(batch, row) == order[4 * place : 4 * place + 4]
