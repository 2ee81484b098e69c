"""Rows in which every combination of values of so many axes stands together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence

Row = dict[str, Hashable]
Place = tuple[str, Hashable]
"""An axis and a value of it."""


def build_covering_rows(axes: Mapping[str, Sequence[Hashable]], strength: int = 2) -> list[Row]:
    """Return rows, a value of each axis, that together have every combination of values of
    `strength` axes.

    Greedy: a row begins with a combination that no row has yet, those of the longest axes first,
    and takes for axis after axis the value that adds the most such combinations, the first of
    equals.
    """
    chosen = list(itertools.combinations(axes, strength))
    chosen.sort(key=lambda names: -math.prod(len(axes[name]) for name in names))
    order = [
        tuple(zip(names, values, strict=True))
        for names in chosen
        for values in itertools.product(*(axes[name] for name in names))
    ]
    left = {frozenset(places) for places in order}
    rows: list[Row] = []
    for places in order:
        if frozenset(places) not in left:
            continue
        row = dict(places)
        for name in axes:
            if name not in row:
                row[name] = max(
                    axes[name], key=lambda value: _count_added((name, value), row, left, strength)
                )
        left -= {frozenset(some) for some in itertools.combinations(row.items(), strength)}
        rows.append({name: row[name] for name in axes})
    return rows


def _count_added(place: Place, row: Row, left: set[frozenset[Place]], strength: int) -> int:
    """Return how many combinations that no row has a value adds to a row."""
    others = itertools.combinations(row.items(), strength - 1)
    return sum(frozenset((place, *some)) in left for some in others)
