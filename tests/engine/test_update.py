"""Updates that are split into those in time and those late, and put together again later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group
from otafl.engine.update import Update

pytestmark = pytest.mark.exact

POPULATION = 4
CELLS = [(0, 0), (0, 1), (0, 3), (1, 2), (1, 3)]
"""(trial, device) of the rows; the third trial has none."""


def cohort(cells: list[tuple[int, int]], version: int) -> Cohort:
    trial, device = (torch.tensor(column) for column in zip(*cells, strict=True))
    zero = torch.zeros_like(trial)
    return Cohort(
        trial,
        device,
        torch.ones(len(cells)),
        zero,
        torch.full_like(zero, version),
        zero,
        zero == 0,
        tuple(sum(s == t for s, _ in cells) for t in range(3)),
        POPULATION,
    )


def number(cells: list[tuple[int, int]], version: int) -> Tensor:
    """[n, 1], says whose it is and of which round."""
    return torch.tensor([[100.0 * version + 10 * s + k] for s, k in cells])


def update(cells: list[tuple[int, int]], version: int) -> Update:
    """Three groups: every row; rows twice and by a mask of one row for all; the odd devices."""
    whole = number(cells, version)
    every = torch.arange(len(cells))
    twice = every.repeat_interleave(2)
    odd = torch.tensor([k % 2 for _, k in cells]).nonzero().squeeze(1)
    draft = torch.tensor([0.0, 0.5]).repeat(len(cells))[:, None]
    return Update(
        cohort(cells, version),
        (
            Group({"a": whole, "b": -whole}),
            Group(
                {"a": (whole[twice] + draft).repeat(1, 2)},
                row_index=twice,
                mask={"a": torch.tensor([[1.0, 0.0]])},
            ),
            Group({"c": whole[odd]}, row_index=odd, weighting="none"),
        ),
    )


def contents(one: Update) -> list[list[tuple]]:
    """For each group the rows as (trial, device, version, values, mask), as a receiver sees
    them."""
    out = []
    for group in one.payload:
        rows = torch.arange(one.cohort.num_rows) if group.row_index is None else group.row_index
        mask = group.full_mask or {}
        seen = []
        for place, row in enumerate(rows.tolist()):
            who = [int(getattr(one.cohort, f)[row]) for f in ("trial", "device", "version")]
            values = {name: tuple(b[place].tolist()) for name, b in group.tensors.items()}
            known = {name: tuple(m[place].tolist()) for name, m in mask.items()}
            seen.append((*who, tuple(values.items()), tuple(known.items())))
        out.append(seen)
    return out


@pytest.mark.parametrize("kept", [[1, 3], []])
def test_split(kept: list[int]) -> None:
    one = update(CELLS, 3)
    keep = torch.zeros(len(CELLS), dtype=torch.bool)
    keep[kept] = True
    for part, rows in zip(one.split(keep), (kept, sorted({*range(5)} - {*kept})), strict=True):
        cells = [CELLS[row] for row in rows]
        expected = contents(update(cells, 3)) if cells else [[], [], []]
        assert contents(part) == expected
        assert part.cohort.counts == tuple(sum(s == t for s, _ in cells) for t in range(3))
        assert [g.weighting for g in part.payload] == ["mean", "mean", "none"]
        assert [g.num_coordinates for g in part.payload] == [2, 2, 1]


def test_join_orders_rows_by_trial_and_device() -> None:
    """Updates of two rounds: as if all had been made at once, apart from their versions."""
    early, fresh = [(0, 1), (1, 3)], [(0, 0), (0, 3), (1, 2)]
    for first, second in (
        (update(early, 0), update(fresh, 2)),
        (update(fresh, 2), update(early, 0)),
    ):
        both = first.join(second)
        assert both.cohort.trial.tolist() == [s for s, _ in CELLS]
        assert both.cohort.device.tolist() == [k for _, k in CELLS]
        assert both.cohort.version.tolist() == [2, 0, 2, 2, 0]
        assert both.cohort.counts == (3, 2, 0)
        for joined, a, b in zip(contents(both), contents(first), contents(second), strict=True):
            assert joined == sorted(a + b)
