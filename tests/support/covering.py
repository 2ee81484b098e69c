"""Rows in which every pair of values of two axes stands together."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

Row = dict[str, Hashable]
Place = tuple[str, Hashable]
"""An axis and a value of it."""


def pairwise(axes: Mapping[str, Sequence[Hashable]]) -> list[Row]:
    """Return rows, a value of each axis, that together have every pair of values of two axes.

    Greedy: a row begins with a pair that no row has yet, those of the longest axes first, and takes
    for axis after axis the value that adds the most such pairs, the first of equals.
    """
    both = list(itertools.combinations(axes, 2))
    both.sort(key=lambda pair: -len(axes[pair[0]]) * len(axes[pair[1]]))
    order = [((a, x), (b, y)) for a, b in both for x, y in itertools.product(axes[a], axes[b])]
    left = {frozenset(pair) for pair in order}
    rows: list[Row] = []
    for pair in order:
        if frozenset(pair) not in left:
            continue
        row = dict(pair)
        for name in axes:
            if name not in row:
                row[name] = max(axes[name], key=lambda value: _added((name, value), row, left))
        left -= {frozenset(two) for two in itertools.combinations(row.items(), 2)}
        rows.append({name: row[name] for name in axes})
    return rows


def _added(place: Place, row: Row, left: set[frozenset[Place]]) -> int:
    """Return how many pairs that no row has a value adds to a row."""
    return sum(frozenset((place, other)) in left for other in row.items())
