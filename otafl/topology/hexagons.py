"""Hexagonal lattice of servers that wraps around, and its division of the band.

A cluster of N = i^2 + i j + j^2 sites tiles the plane. On the torus of its copies every site has
the same neighbours. With reuse r, another such number, a site shares its part of the band with the
sites of a sublattice.

In the plane, the co-channel sites of a site form a hexagonal lattice with steps of D = sqrt(r) site
distances. Its first tier has 6 sites at D, and its second tier has 6 sites at sqrt(3) D and 6 sites
at 2 D. A torus with few sites has fewer co-channel sites than these 18, and shows each of them at
several places (`Hexagons.images`).

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
    further place of the first two tiers, at most 2 D away. At a place of the tiers that the torus
    fills with the site itself, another co-channel site takes its turn. A site's own signal is no
    interference, and the plane has another cell there.

    Parameters
    ----------
    site : ndarray, int64 [N, I]
        Site of each image. The nearest images come first, in the order of
        `Hexagons.list_co_channel_sites`.
    shift : ndarray, float64 [N, I, 2]
        Vector from a site to the image, in site distances.
    """

    site: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True)
class Hexagons:
    """Cluster of N sites.

    Parameters
    ----------
    positions : ndarray, float64 [N, 2]
        Positions in site distances.
    shift : ndarray, float64 [N, N, 2]
        Shortest vector from a site to each other, around the torus if that is shorter.
    band : ndarray, int64 [N]
        Part of the band of each site.
    images : Images
        Co-channel sites that each site receives, and their places.
    """

    positions: np.ndarray
    shift: np.ndarray
    band: np.ndarray
    images: Images

    @property
    def is_shared(self) -> bool:
        """Whether several sites have the same part of the band."""
        return len(set(self.band.tolist())) < len(self.band)

    def list_co_channel_sites(self) -> list[list[int]]:
        """List the other sites with the same part of the band, for each site."""
        return _list_others(self.band)


def list_cluster_sizes(max_sites: int) -> list[int]:
    """List the numbers of sites, up to a largest, that tile the plane."""
    numbers = range(math.isqrt(max_sites) + 1)
    return sorted(
        {i * i + i * j + j * j for i in numbers for j in numbers} & {*range(1, max_sites + 1)}
    )


@functools.cache
def build_hexagons(sites: int, reuse: int) -> Hexagons | None:
    """Build a cluster of sites with a frequency reuse.

    Parameters
    ----------
    sites : int
        Number of sites N.
    reuse : int
        Number of parts of the band r.

    Returns
    -------
    Hexagons, optional
        The cluster; None if a number does not tile the plane, or if sites with the same part of the
        band touch on the torus.
    """
    for turn in _list_sublattices(sites):
        for other in _list_sublattices(reuse):
            if all(_get_coset(step, other, reuse) == (0, 0) for step in turn):
                return _lay_out(sites, turn, other, reuse)
    return None


Steps = tuple[tuple[int, int], tuple[int, int]]
"""Two steps that generate a sublattice, in steps of the lattice."""


def _list_sublattices(size: int) -> list[Steps]:
    """List the sublattices of so many sites: (i, j) and its rotation by 60 degrees."""
    numbers = range(math.isqrt(size) + 1)
    pairs = [(i, j) for i in numbers for j in numbers if i * i + i * j + j * j == size]
    return [((i, j), (-j, i + j)) for i, j in pairs]


def _get_coset(step: tuple[int, int], of: Steps, size: int) -> tuple[int, int]:
    """Return the coset of a sublattice that contains a site; (0, 0) is the sublattice itself."""
    (a, b), (c, d) = of  # x = (m (a, b) + n (c, d)) / size, with determinant a d - b c = size
    return (step[0] * d - step[1] * c) % size, (step[1] * a - step[0] * b) % size


def _lay_out(sites: int, turn: Steps, other: Steps, reuse: int) -> Hexagons:
    """Lay out the cluster of the sublattice `turn`, with the parts of the band of `other`."""
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

    images = []  # sites and steps around each site
    for own, others in enumerate(_list_others(np.array(band))):
        around = [(other, shift[own, other].tolist()) for other in others]
        instead = itertools.cycle(others)
        for way in tiers if others else ():
            x, y = (steps[own] + way).tolist()
            there = number[_get_coset((x, y), turn, sites)]
            if there == own:
                around.append((next(instead), way))
            elif way != shift[own, there].tolist():
                around.append((there, way))
        images.append(around)
    site = np.array([[other for other, _ in around] for around in images])
    ways = np.array([[way for _, way in around] for around in images])
    return Hexagons(
        steps @ BASIS,
        shift @ BASIS,
        np.array(band),
        Images(site, ways.reshape(sites, -1, 2) @ BASIS),
    )


def _list_others(band: np.ndarray) -> list[list[int]]:
    """List the other sites with the same part of the band, from the parts [N]."""
    return [
        [other for other in np.flatnonzero(band == own).tolist() if other != site]
        for site, own in enumerate(band)
    ]


_AROUND = (-2, -1, 0, 1, 2)


def _list_steps(steps: Steps) -> np.ndarray:
    """Return the sublattice around its origin, [25, 2] in steps of the lattice."""
    first, second = np.array(steps)
    return np.array([m * first + n * second for m in _AROUND for n in _AROUND])


def _compute_squared_length(step: Sequence[int]) -> tuple[int, int, int]:
    """Return the squared length of a step, and an order of equal ones."""
    x, y = step
    return x * x + x * y + y * y, x, y
