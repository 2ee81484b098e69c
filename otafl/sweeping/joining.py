"""Put the records of the batches of a stack together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otafl.results import models as trained
from otafl.results.record import Record
from otafl.results.variables import get_variable
from otafl.sweeping.planning import Batch

Piece = tuple[Batch, Record]


def join_records(pieces: Sequence[Piece], num_points: int, num_trials: int) -> Record:
    """Join records to one of `num_points` points and `num_trials` trials.

    Missing rounds and trials are NaN.
    """
    records = [record for _, record in pieces]
    if len(pieces) == 1 and pieces[0][0].num_rows == num_points * num_trials:
        return records[0]
    rounds = sorted({r for record in records for r in record.rounds})
    batches = [batch for batch, _ in pieces]
    variables = {}
    for name in records[0].variables:
        values = [record.variables[name] for record in records]
        if "round" in get_variable(name).dims:
            values = [
                _align_rounds(value, record.rounds, rounds)
                for value, record in zip(values, records, strict=True)
            ]
        variables[name] = _place_batches(batches, values, (num_points, num_trials))
    links = [(batch, record.link) for batch, record in pieces if record.link is not None]
    link = None
    if links:
        where = [batch for batch, _ in links]
        link = {
            name: _place_batches(where, [one[name] for _, one in links], (num_points, num_trials))
            for name in links[0][1]
        }
    models = [record.models for record in records if record.models is not None]
    complete = all(record.complete for record in records)
    whole = trained.join(models) if models else None
    each = tuple(batch for record in records for batch in record.batches)
    return Record(rounds, variables, complete, link, whole, each)


def _place_batches(
    batches: Sequence[Batch], values: Sequence[np.ndarray], shape: tuple[int, int]
) -> np.ndarray:
    """Put arrays [points, trials, ...] of batches at their places among all points and trials.

    NaN (0 for whole numbers) stands for what is not there: trials that did not run, rounds after an
    early end.
    """
    rest = np.max([value.shape[2:] for value in values], 0).astype(int)
    fill = math.nan if values[0].dtype.kind in "fc" else 0
    whole = np.full((*shape, *rest), fill, dtype=values[0].dtype)
    for batch, value in zip(batches, values, strict=True):
        inner = tuple(slice(size) for size in value.shape[2:])
        trials = np.asarray(batch.trials)
        for row, point in enumerate(batch.points):
            whole[point][(trials, *inner)] = value[row]
    return whole


def _align_rounds(values: np.ndarray, own_rounds: list[int], rounds: list[int]) -> np.ndarray:
    out = np.full((*values.shape[:2], len(rounds), *values.shape[3:]), math.nan)
    out[:, :, [rounds.index(r) for r in own_rounds]] = values
    return out
