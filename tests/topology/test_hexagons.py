"""The lattice of servers: every site sees the same, and parts of the band keep their distance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otafl.topology.hexagons import build_hexagons

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("sites", "reuse"), [(7, 7), (21, 3), (19, 1), (1, 1)])
def test_all_sites_are_alike(sites: int, reuse: int) -> None:
    layout = build_hexagons(sites, reuse)
    assert layout is not None
    distance = np.linalg.norm(layout.shift, axis=-1)
    np.testing.assert_allclose(np.sort(distance, 1), np.sort(distance, 1)[:1].repeat(sites, 0))
    np.testing.assert_allclose(distance, distance.T)
    assert (np.diag(distance) == 0).all()
    assert np.bincount(layout.band).tolist() == [sites // reuse] * reuse


@pytest.mark.parametrize(("sites", "reuse"), [(21, 3), (12, 4)])
def test_who_shares_a_part_of_the_band_is_far(sites: int, reuse: int) -> None:
    """The co-channel distance is sqrt(r) site distances, the textbook's D = R sqrt(3 N)."""
    layout = build_hexagons(sites, reuse)
    assert layout is not None
    for site, others in enumerate(layout.list_co_channel_sites()):
        nearest = min(np.linalg.norm(layout.shift[site, other]) for other in others)
        assert nearest == pytest.approx(math.sqrt(reuse))


@pytest.mark.parametrize("sites", [(3, 1), (7, 1), (12, 3), (21, 7)])
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
