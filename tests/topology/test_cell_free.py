"""Access points that stand apart, as one array at the centre."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario, section
from support.rounding import SINGLE, assert_agree

from otafl.channels.base import Channel
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact

FREE: dict[str, Any] = {"name": "cell_free", "points": 4}
SQUARE = ((50.0, 0.0), (0.0, 50.0), (-50.0, 0.0), (0.0, -50.0))


def channel_of(topology: dict[str, Any], changes: dict[str, Any] | None = None) -> Channel:
    keys = {"engine.dtype": "float64", "topology": topology, "power": "ci"}
    return engine(keys | (changes or {}), [0, 1]).parts.link.channel


def test_points_that_all_hear_alike_are_an_array() -> None:
    """Without path loss it makes no difference where antennas are."""
    keys = {"power": "multi_antenna_ci", "receiver": "uniform_forcing"}
    free = run(engine(keys | {"topology": FREE | {"exponent": 0}}, [0]), 2)
    array = run(engine(keys | {"channel": {"name": "rayleigh", "antennas": 4}}, [0]), 2)
    assert_agree(free.server, array.server, tolerance=2 * SINGLE)  # after two rounds


def test_gains_are_by_distance() -> None:
    """Large-scale gain is the mean over the points, and |h|^2 has the rest."""
    free = channel_of(FREE | {"places_m": SQUARE, "exponent": 4, "height_m": 5})
    array = channel_of("star", {"channel": {"name": "rayleigh", "antennas": 4}})
    places = free.get_positions(0, 1)
    assert places is not None
    apart = np.linalg.norm(places.device_m[:, None] - np.array(SQUARE), axis=2)
    gain = (apart**2 + 25.0) ** -2
    state, plain = free.get_state(3), array.get_state(3)
    found = (state.gain[1, :, None] * (state.h / plain.h)[1, :, :, 0, 0].abs() ** 2).numpy()
    ratio = found / gain
    np.testing.assert_allclose(ratio, ratio[0, 0])  # of one unit in a trial
    np.testing.assert_allclose(state.gain[1].numpy(), found.mean(1))
    other = free.get_positions(0, 0)
    assert other is not None
    assert not np.allclose(other.device_m, places.device_m)


def test_h_follows_from_the_paths_to_all_points() -> None:
    groups, bandwidth = 5, 2e7
    keys = {"channel": {"name": "tdl-a", "subcarrier_groups": groups, "bandwidth_hz": bandwidth}}
    state = channel_of({"name": "cell_free", "points": 3}, keys).get_state(1)
    assert state.paths_fn is not None
    paths = state.paths_fn(1)
    frequency = (torch.arange(groups, dtype=torch.float64) - (groups - 1) / 2) * bandwidth / groups
    turns = torch.exp(-2j * torch.pi * frequency * paths.delay_s[..., None])[:, :, None]
    h = (paths.a[..., None] * turns).sum(-2)
    torch.testing.assert_close(h, state.h, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_in_a_cell_each_point_has_a_path_loss_of_its_own() -> None:
    """That of the 3GPP cell, from the devices' distance to it, and rays of its own."""
    keys = {"channel": {"name": "umi", "subcarrier_groups": 1, "shadowing": False}}
    place = [[0.0, 0.0], [2000.0, 0.0], [0.0, 0.0]]
    free = channel_of({"name": "cell_free", "points": 3, "places_m": place}, keys)
    state = free.get_state(0)
    assert state.h.shape[2] == 3
    each = state.h.abs().square()[..., 0, 0] * state.gain[..., None]
    assert not torch.isclose(each[..., 0], each[..., 2], atol=0).any()
    near, far, _ = (one.links.path_loss_db for one in free._each)  # type: ignore[attr-defined]
    assert (far > near + 15).all()
    clear = 32.4 + 21 * np.log10(2000) + 20 * np.log10(3.5)  # 3GPP's least, near the point's middle
    assert (far > clear - 2).all()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"topology": FREE | {"places_m": [[0, 0]]}},
            "got 1 places for topology.points 4; give one for each",
        ),
        ({"topology": FREE, "channel": section("trace")}, "'trace' has its own antennas"),
        ({"topology": FREE | {"radius_m": 50}, "channel": "umi"}, "are within its cell_radius_m"),
    ],
)
def test_what_does_not_go_with_it(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        scenario(keys)
