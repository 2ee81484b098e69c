"""Lay out servers on a hexagonal lattice that wraps around, and share the band out among them.

A cluster of N = i^2 + i j + j^2 sites tiles the plane, and on the torus that its copies make every
site has the same neighbours. With reuse r, itself such a number, a site shares its part of the band
with those that the sublattice of r reaches.

In the plane, the co-channel sites of a site form a hexagonal lattice with steps of
D = sqrt(r) site distances. Its first tier has 6 sites at D, and its second tier has 6 sites at
sqrt(3) D and 6 sites at 2 D. A torus with few sites has fewer co-channel sites than these 18, and
shows each of them at several places (`Hexagons.images`).

References
----------
MacDonald 1979, "The Cellular Concept", Bell System Technical Journal 58(1): N = i^2 + i j + j^2.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BASIS = np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
"""Steps of the lattice at unit distance between sites."""


@dataclass(frozen=True)
class Images:
    """Co-channel sites around each of N sites, as the plane shows them.

    Each site has I images around it: the nearest image of each other co-channel site, and every
    further place of the first two tiers, at most 2 D away. A place of the tiers that the torus
    fills with the site itself takes another co-channel site instead, in turn. A site's own signal
    is no interference, and the plane has another cell there.

    site: [N, I] int64, the site that each image is of. shift: [N, I, 2] from a site to the image,
    in site distances. The nearest images come first, in the order of
    `Hexagons.list_co_channel_sites`.
    """

    site: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True)
class Hexagons:
    """Hold a cluster of N sites.

    positions: [N, 2] in site distances. shift: [N, N, 2] the shortest way from a site to each
    other, around the torus where that is shorter. band: [N] the part of the band that each has.
    images: the co-channel sites that each site receives, and where they are.
    """

    positions: np.ndarray
    shift: np.ndarray
    band: np.ndarray
    images: Images

    @property
    def is_shared(self) -> bool:
        """Say whether several sites have one part of the band."""
        return len(set(self.band.tolist())) < len(self.band)

    def list_co_channel_sites(self) -> list[list[int]]:
        """List the other sites with each site's part of the band."""
        return _list_others(self.band)


def list_cluster_sizes(max_sites: int) -> list[int]:
    """List the numbers of sites that tile the plane."""
    numbers = range(math.isqrt(max_sites) + 1)
    return sorted(
        {i * i + i * j + j * j for i in numbers for j in numbers} & {*range(1, max_sites + 1)}
    )


@functools.cache
def build_hexagons(sites: int, reuse: int) -> Hexagons | None:
    """Lay out a cluster; None where its parts of the band would meet each other on the torus, or
    one of the numbers does not tile the plane."""
    for turn in _list_sublattices(sites):
        for other in _list_sublattices(reuse):
            if all(_get_coset(step, other, reuse) == (0, 0) for step in turn):
                return _lay_out(sites, turn, other, reuse)
    return None


Steps = tuple[tuple[int, int], tuple[int, int]]
"""Two steps that a sublattice is made of, in steps of the lattice."""


def _list_sublattices(size: int) -> list[Steps]:
    """List the sublattices of so many sites: (i, j), and it turned by 60 degrees, (-j, i + j)."""
    numbers = range(math.isqrt(size) + 1)
    pairs = [(i, j) for i in numbers for j in numbers if i * i + i * j + j * j == size]
    return [((i, j), (-j, i + j)) for i, j in pairs]


def _get_coset(step: tuple[int, int], of: Steps, size: int) -> tuple[int, int]:
    """Return which of the sublattice's shifted copies a site is in; (0, 0) for its own."""
    (a, b), (c, d) = of  # x = (m (a, b) + n (c, d)) / size, with determinant a d - b c = size
    return (step[0] * d - step[1] * c) % size, (step[1] * a - step[0] * b) % size


def _lay_out(sites: int, turn: Steps, other: Steps, reuse: int) -> Hexagons:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    span = range(-sites, sites + 1)
    near = sorted(((x, y) for x in span for y in span), key=_compute_squared_length)
    for step in near:
        found.setdefault(_get_coset(step, turn, sites), step)
    steps = np.array(list(found.values()))
    ways = steps[None, :, None] - steps[:, None, None] + _list_steps(turn)
    shortest = np.linalg.norm(ways @ BASIS, axis=-1).argmin(-1)
    shift = np.take_along_axis(ways, shortest[..., None, None], 2)[:, :, 0]
    bands: dict[tuple[int, int], int] = {}
    band = [
        bands.setdefault(_get_coset((x, y), other, reuse), len(bands)) for x, y in steps.tolist()
    ]
    number = {one: index for index, one in enumerate(found)}
    tiers = [
        step
        for step in _list_steps(other).tolist()
        if 0 < _compute_squared_length(step)[0] <= 4 * reuse
    ]

    def site_at(place: np.ndarray) -> int:
        return number[_get_coset((int(place[0]), int(place[1])), turn, sites)]

    interferers = _list_others(np.array(band))
    images = [
        _list_images(
            site, others, shift[site], [(site_at(steps[site] + way), way) for way in tiers]
        )
        for site, others in enumerate(interferers)
    ]
    site, way = (np.array(list(part)) for part in zip(*images, strict=True))
    return Hexagons(
        steps @ BASIS,
        shift @ BASIS,
        np.array(band),
        Images(site, way.reshape(sites, -1, 2) @ BASIS),
    )


def _list_images(
    site: int, others: list[int], nearest: np.ndarray, tiers: list[tuple[int, list[int]]]
) -> tuple[list[int], list[list[int]]]:
    """List the images around a site as sites and steps.

    others: its co-channel sites. nearest: [N, 2] the shortest way to each site. tiers: the site at
    each place of the first two tiers, and the way to that place.
    """
    images = [(other, nearest[other].tolist()) for other in others]
    instead = itertools.cycle(others)
    for there, way in tiers if others else ():
        if there == site:
            images.append((next(instead), way))
        elif way != nearest[there].tolist():
            images.append((there, way))
    return [other for other, _ in images], [way for _, way in images]


def _list_others(band: np.ndarray) -> list[list[int]]:
    """List the other sites with each site's part of the band [N]."""
    return [
        [other for other in np.flatnonzero(band == own).tolist() if other != site]
        for site, own in enumerate(band)
    ]


_AROUND = (-2, -1, 0, 1, 2)


def _list_steps(steps: Steps) -> np.ndarray:
    """Return the sublattice around its origin, [25, 2] steps of the lattice."""
    first, second = np.array(steps)
    return np.array([m * first + n * second for m in _AROUND for n in _AROUND])


def _compute_squared_length(step: Sequence[int]) -> tuple[int, int, int]:
    """Return the squared length of a step, and an order among equals."""
    x, y = step
    return x * x + x * y + y * y, x, y
