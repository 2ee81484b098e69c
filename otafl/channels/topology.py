"""Place the devices of a cell.

They are dropped uniformly in a ring around the server, and stand, or walk straight on with
reflection at the edge of the cell. Positions are functions of time. Who walks may come nearer to
the server than devices are dropped.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.ofdm import Pairs
from otafl.core.rng import purpose

POSITION = purpose("position", __name__)


def drop(
    pairs: Pairs, inner_m: float, outer_m: float, height_m: float, indoor_probability: float
) -> tuple[Tensor, Tensor]:
    """Draw positions [U, K, 3] in metres, float64, uniform over the ring between two radii, and who
    is indoors, [U, K] bool."""
    area, turn, door = pairs.once(POSITION, (3,)).double().unbind(-1)
    inner, outer = inner_m**2, outer_m**2
    distance = (inner + area * (outer - inner)).sqrt()
    angle = 2.0 * math.pi * turn
    height = torch.full_like(distance, height_m)
    position = torch.stack([distance * angle.cos(), distance * angle.sin(), height], -1)
    return position, door < indoor_probability


def reflected(position: Tensor, velocity: Tensor, radius: float, time_s: Tensor) -> Tensor:
    """Return the positions [R, U, K, 3] of devices that are reflected at a circle.

    After the first chord, all chords are equally long, and each is the one before, turned by the
    same angle.

    Parameters
    ----------
    position : [U, K, 3] metres, at time 0.
    velocity : [U, K, 3] m/s, horizontal.
    radius : of the circle, metres.
    time_s : [R, U].
    """
    start, speed = position[..., :2], velocity[..., :2].norm(dim=-1, keepdim=True)
    heading = velocity[..., :2] / speed.clamp_min(1e-12)
    along = (start * heading).sum(-1, keepdim=True)
    to_edge = -along + (along**2 - (start**2).sum(-1, keepdim=True) + radius**2).sqrt()
    edge = start + to_edge * heading
    inward = heading - 2.0 * (heading * edge).sum(-1, keepdim=True) / radius**2 * edge
    chord = (-2.0 * (inward * edge).sum(-1, keepdim=True)).clamp_min(1e-9 * radius)
    # chord = |next hit - hit| for a unit heading: |edge + c inward| = radius
    target = edge + chord * inward
    cross = edge[..., :1] * target[..., 1:] - edge[..., 1:] * target[..., :1]
    turn = torch.atan2(cross, (edge * target).sum(-1, keepdim=True))

    walked = speed * time_s[:, :, None, None]
    beyond = walked - to_edge
    chords = (beyond / chord).floor()
    point = edge + (beyond - chords * chord) * inward
    angle = chords * turn
    cosine, sine = angle.cos(), angle.sin()
    x = cosine * point[..., :1] - sine * point[..., 1:]
    y = sine * point[..., :1] + cosine * point[..., 1:]
    plane = torch.where(beyond < 0, start + walked * heading, torch.cat([x, y], -1))
    return torch.cat([plane, position[..., 2:].expand(*plane.shape[:-1], 1)], -1)
