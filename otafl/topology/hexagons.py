"""Lay out servers on a hexagonal lattice that wraps around, and share the band out among them.

A cluster of N = i^2 + i j + j^2 sites tiles the plane, and on the torus that its copies make every
site has the same neighbours. With reuse r, itself such a number, a site shares its part of the band
with those that the sublattice of r reaches.

References
----------
MacDonald 1979, "The Cellular Concept", Bell System Technical Journal 58(1): N = i^2 + i j + j^2.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

BASIS = np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
"""Steps of the lattice at unit distance between sites."""


@dataclass(frozen=True)
class Hexagons:
    """Hold a cluster of N sites.

    places: [N, 2] in site distances. shift: [N, N, 2] the shortest way from a site to each other,
    around the torus where that is shorter. band: [N] the part of the band that each has.
    """

    places: np.ndarray
    shift: np.ndarray
    band: np.ndarray

    @property
    def shared(self) -> bool:
        """Say whether several sites have one part of the band."""
        return len(set(self.band.tolist())) < len(self.band)

    def heard(self) -> list[list[int]]:
        """List the other sites with each site's part of the band."""
        return [
            [other for other in np.flatnonzero(self.band == own).tolist() if other != site]
            for site, own in enumerate(self.band)
        ]


def sizes(most: int) -> list[int]:
    """List the numbers of sites that tile the plane."""
    numbers = range(math.isqrt(most) + 1)
    return sorted({i * i + i * j + j * j for i in numbers for j in numbers} & {*range(1, most + 1)})


@functools.cache
def hexagons(sites: int, reuse: int) -> Hexagons | None:
    """Lay out a cluster; None where its parts of the band would meet each other on the torus, or
    one of the numbers does not tile the plane."""
    for turn in _turns(sites):
        for other in _turns(reuse):
            if all(_class(step, other, reuse) == (0, 0) for step in turn):
                return _laid_out(sites, turn, other, reuse)
    return None


Steps = tuple[tuple[int, int], tuple[int, int]]
"""Two steps that a sublattice is made of, in steps of the lattice."""


def _turns(size: int) -> list[Steps]:
    """List the sublattices of so many sites: (i, j), and it turned by 60 degrees, (-j, i + j)."""
    numbers = range(math.isqrt(size) + 1)
    pairs = [(i, j) for i in numbers for j in numbers if i * i + i * j + j * j == size]
    return [((i, j), (-j, i + j)) for i, j in pairs]


def _class(step: tuple[int, int], of: Steps, size: int) -> tuple[int, int]:
    """Return which of the sublattice's shifted copies a site is in; (0, 0) for its own."""
    (a, b), (c, d) = of  # x = (m (a, b) + n (c, d)) / size, with determinant a d - b c = size
    return (step[0] * d - step[1] * c) % size, (step[1] * a - step[0] * b) % size


def _laid_out(sites: int, turn: Steps, other: Steps, reuse: int) -> Hexagons:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    span = range(-sites, sites + 1)
    near = sorted(((x, y) for x in span for y in span), key=_length)
    for step in near:
        found.setdefault(_class(step, turn, sites), step)
    steps = np.array(list(found.values()))
    copies = np.array(
        [m * np.array(turn[0]) + n * np.array(turn[1]) for m in _AROUND for n in _AROUND]
    )
    ways = (steps[None, :, None] - steps[:, None, None] + copies) @ BASIS
    shortest = np.linalg.norm(ways, axis=-1).argmin(-1)
    shift = np.take_along_axis(ways, shortest[..., None, None], 2)[:, :, 0]
    bands: dict[tuple[int, int], int] = {}
    band = [bands.setdefault(_class((x, y), other, reuse), len(bands)) for x, y in steps.tolist()]
    return Hexagons(steps @ BASIS, shift, np.array(band))


_AROUND = (-2, -1, 0, 1, 2)


def _length(step: tuple[int, int]) -> tuple[int, int, int]:
    """Return the squared length of a step, and an order among equals."""
    x, y = step
    return x * x + x * y + y * y, x, y
