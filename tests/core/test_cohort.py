"""The rows of a cohort."""

from __future__ import annotations

import itertools

import pytest
import torch

from otafl.core.contracts import Cohort

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("counts", [(3,), (0, 2, 0, 0, 3, 1), (0, 0), (1, 1, 1)])
def test_every_chunk_knows_how_many_rows_each_trial_has(counts: tuple[int, ...]) -> None:
    trial = torch.tensor([s for s, rows in enumerate(counts) for _ in range(rows)]).long()
    cohort = Cohort.create(trial, trial, torch.ones(len(trial)), counts, 3)
    for start, stop in itertools.combinations_with_replacement(range(len(trial) + 3), 2):
        chunk = cohort.slice_rows(start, stop)  # as other slices, up to the end at most
        law = torch.bincount(trial[start:stop], minlength=len(counts))
        assert chunk.counts == tuple(law.tolist())
