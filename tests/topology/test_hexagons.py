"""The lattice of servers: every site sees the same, and parts of the band keep their distance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otafl.topology.hexagons import build_hexagons, list_cluster_sizes

pytestmark = pytest.mark.exact


def test_numbers_that_tile_the_plane() -> None:
    assert list_cluster_sizes(28) == [1, 3, 4, 7, 9, 12, 13, 16, 19, 21, 25, 27, 28]


@pytest.mark.parametrize(("sites", "reuse"), [(7, 1), (7, 7), (21, 3), (12, 4), (19, 1), (1, 1)])
def test_all_sites_are_alike(sites: int, reuse: int) -> None:
    layout = build_hexagons(sites, reuse)
    assert layout is not None
    distance = np.linalg.norm(layout.shift, axis=-1)
    np.testing.assert_allclose(np.sort(distance, 1), np.sort(distance, 1)[:1].repeat(sites, 0))
    np.testing.assert_allclose(distance, distance.T)
    assert (np.diag(distance) == 0).all()
    assert np.bincount(layout.band).tolist() == [sites // reuse] * reuse


@pytest.mark.parametrize(("sites", "reuse"), [(21, 3), (12, 3), (12, 4), (21, 7)])
def test_who_shares_a_part_of_the_band_is_far(sites: int, reuse: int) -> None:
    """The co-channel distance is sqrt(r) site distances, the textbook's D = R sqrt(3 N)."""
    layout = build_hexagons(sites, reuse)
    assert layout is not None
    for site, others in enumerate(layout.list_co_channel_sites()):
        nearest = min(np.linalg.norm(layout.shift[site, other]) for other in others)
        assert nearest == pytest.approx(math.sqrt(reuse))


def test_six_neighbours_around_each_of_seven() -> None:
    layout = build_hexagons(7, 1)
    assert layout is not None
    np.testing.assert_allclose(np.sort(np.linalg.norm(layout.shift, axis=-1), 1)[:, 1:], 1.0)


@pytest.mark.parametrize(("sites", "reuse"), [(7, 3), (5, 1), (7, 2), (9, 7)])
def test_what_does_not_tile(sites: int, reuse: int) -> None:
    assert build_hexagons(sites, reuse) is None


@pytest.mark.parametrize("sites", [(3, 1), (7, 1), (9, 1), (12, 3), (16, 4), (19, 1), (21, 7)])
def test_each_site_receives_the_two_tiers_of_the_plane(sites: tuple[int, int]) -> None:
    """6 cells at D, 6 at sqrt(3) D and 6 at 2 D, as many from each side; none is the site."""
    layout = build_hexagons(*sites)
    assert layout is not None
    images = layout.images
    squares = np.sort((images.shift**2).sum(2) / sites[1], 1)
    np.testing.assert_allclose(squares, np.tile([1.0] * 6 + [3.0] * 6 + [4.0] * 6, (sites[0], 1)))
    np.testing.assert_allclose(images.shift.sum(1), 0.0, atol=1e-9)
    for site, others in enumerate(layout.list_co_channel_sites()):
        assert images.site[site, : len(others)].tolist() == others
        assert set(images.site[site].tolist()) == set(others)
        counts = np.bincount(images.site[site])[others]
        assert counts.max() - counts.min() <= 2


def test_a_large_torus_shows_each_site_once() -> None:
    for sites, reuse in ((19, 1), (21, 1), (28, 1), (63, 3)):
        layout = build_hexagons(sites, reuse)
        assert layout is not None
        assert layout.images.site.tolist() == layout.list_co_channel_sites()
        at = np.arange(sites)[:, None], layout.images.site
        np.testing.assert_allclose(layout.images.shift, layout.shift[at], atol=1e-9)


def test_images_are_where_the_torus_puts_them() -> None:
    """A way to an image ends at its site, or, for one that stands in, at the site that receives."""
    layout = build_hexagons(12, 3)
    assert layout is not None
    nearest = {(a, b): layout.shift[a, b] for a in range(12) for b in range(12)}
    turns = np.array([[2.0, 2.0], [-2.0, 4.0]]) @ np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
    for site in range(12):
        own = 0
        for other, way in zip(layout.images.site[site], layout.images.shift[site], strict=True):
            steps = np.linalg.solve(turns.T, way - nearest[site, int(other)])
            if not np.allclose(steps, np.rint(steps)):
                steps = np.linalg.solve(turns.T, way)
                own += 1
            np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)
        assert own == 6  # the site itself is six times at 2 D
