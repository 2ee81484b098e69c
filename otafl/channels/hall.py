"""Positions of devices in a hall, a rectangle with the server in its centre."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.channels.ofdm import Pairs
from otafl.core.rng import declare_purpose

POSITION = declare_purpose("hall_position", __name__)

ATTEMPTS = 16
"""Draws of a position, of which the first one is taken that is not too close to the server.

Each is too close with a probability of at most pi / 16, so that none suffices with 10^-11.
"""


def draw_hall_positions(
    pairs: Pairs, size_m: tuple[float, float, float], min_distance_m: float, height_m: float
) -> Tensor:
    """Draw positions uniformly over a hall, except near the server.

    Parameters
    ----------
    pairs : Pairs
        Random streams of U x K devices.
    size_m : tuple of float
        Length, width and height of the hall.
    min_distance_m : float
        Smallest horizontal distance from the server, at most a quarter of the hall's width.
    height_m : float
        Height of the devices.

    Returns
    -------
    Tensor, float64 [U, K, 3]
        Positions in metres from the centre of the floor.
    """
    drawn = pairs.draw_static_uniform(POSITION, (ATTEMPTS, 2)).double() - 0.5
    place = drawn * drawn.new_tensor(size_m[:2])
    first = (place.norm(dim=-1) >= min_distance_m).to(torch.int8).argmax(-1)
    chosen = place.gather(2, first[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
    return torch.nn.functional.pad(chosen, (0, 1), value=height_m)


def reflect_at_walls(
    position: Tensor, velocity: Tensor, size_m: tuple[float, float, float], time_s: Tensor
) -> Tensor:
    """Return the positions of devices that are reflected at the walls of a hall.

    Parameters
    ----------
    position, velocity : Tensor, float64 [U, K, 3]
        Positions at time 0 in metres, and horizontal velocities in m/s.
    size_m : tuple of float
        Length, width and height of the hall.
    time_s : Tensor [R, U]
        Times in seconds.

    Returns
    -------
    Tensor, float64 [R, U, K, 3]
        Positions in metres.
    """
    way = position + velocity * time_s[:, :, None, None]
    size = position.new_tensor(size_m[:2])
    # each coordinate is a triangle wave of its unreflected value, with a period of two sizes
    phase = torch.remainder(way[..., :2] + size / 2.0, 2.0 * size)
    plane = size / 2.0 - (phase - size).abs()
    return torch.cat([plane, way[..., 2:]], -1)
