"""The lattice of servers: every site sees the same, and parts of the band keep their distance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otafl.topology.hexagons import hexagons, sizes

pytestmark = pytest.mark.exact


def test_numbers_that_tile_the_plane() -> None:
    assert sizes(28) == [1, 3, 4, 7, 9, 12, 13, 16, 19, 21, 25, 27, 28]


@pytest.mark.parametrize(("sites", "reuse"), [(7, 1), (7, 7), (21, 3), (12, 4), (19, 1), (1, 1)])
def test_all_sites_are_alike(sites: int, reuse: int) -> None:
    layout = hexagons(sites, reuse)
    assert layout is not None
    distance = np.linalg.norm(layout.shift, axis=-1)
    np.testing.assert_allclose(np.sort(distance, 1), np.sort(distance, 1)[:1].repeat(sites, 0))
    np.testing.assert_allclose(distance, distance.T)
    assert (np.diag(distance) == 0).all()
    assert np.bincount(layout.band).tolist() == [sites // reuse] * reuse


@pytest.mark.parametrize(("sites", "reuse"), [(21, 3), (12, 3), (12, 4), (21, 7)])
def test_who_shares_a_part_of_the_band_is_far(sites: int, reuse: int) -> None:
    """The co-channel distance is sqrt(r) site distances, the textbook's D = R sqrt(3 N)."""
    layout = hexagons(sites, reuse)
    assert layout is not None
    for site, others in enumerate(layout.heard()):
        nearest = min(np.linalg.norm(layout.shift[site, other]) for other in others)
        assert nearest == pytest.approx(math.sqrt(reuse))


def test_six_neighbours_around_each_of_seven() -> None:
    layout = hexagons(7, 1)
    assert layout is not None
    np.testing.assert_allclose(np.sort(np.linalg.norm(layout.shift, axis=-1), 1)[:, 1:], 1.0)


@pytest.mark.parametrize(("sites", "reuse"), [(7, 3), (5, 1), (7, 2), (9, 7)])
def test_what_does_not_tile(sites: int, reuse: int) -> None:
    assert hexagons(sites, reuse) is None
