"""Shadow fading as a normal random field over the cell."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.cell_drop import CellDrop
from otafl.channels.ofdm import Pairs
from otafl.core.rng import declare_purpose

SHADOWING = declare_purpose("shadowing", __name__)

FIELD_WAVES = 128
"""Number of cosines in a shadowing field."""


class ShadowingField:
    """Shadow fading by position, normal in dB.

    Its correlation over a distance d is exp(-d / d_cor), and it has Sionna's value at the position
    of the drop.

    Parameters
    ----------
    links : CellDrop
        Links of U x K devices.
    start : Tensor, float64 [U, K, 3]
        Their positions in the drop, in metres.
    indoor : Tensor, bool [U, K]
        Devices indoors.
    pairs : Pairs
        Random streams of the pairs.

    Notes
    -----
    Each trial has one field G of unit variance for each of line of sight, no line of sight, and
    indoors, as a sum of cosines. Because exp(-d) is the characteristic function of the planar
    Cauchy distribution, wave vectors have the radius sqrt(1 / (1 - u)^2 - 1) for a uniform u.
    Conditioned on the value g_0 at x_0, the field is

    .. math::

        G(x) + e^{-|x - x_0| / d_{cor}} (g_0 - G(x_0))
    """

    def __init__(self, links: CellDrop, start: Tensor, indoor: Tensor, pairs: Pairs) -> None:
        uniform = pairs.streams.draw_uniform(SHADOWING, 0, (3, FIELD_WAVES, 3))[pairs.rows].double()
        radius = (1.0 / (1.0 - uniform[..., 0]) ** 2 - 1.0).sqrt()
        heading = 2.0 * math.pi * uniform[..., 1]
        vector = torch.stack([radius * heading.cos(), radius * heading.sin()], -1)
        kind = torch.where(links.line_of_sight, 0, torch.where(indoor, 2, 1))
        trial = torch.arange(len(kind), device=kind.device)[:, None]
        self._vector = vector[trial, kind]  # [U, K, waves, 2]
        self._phase = 2.0 * math.pi * uniform[..., 2][trial, kind]
        self._start, self._std = start, links.shadowing_std_db
        self._distance = links.shadowing_distance_m
        self._missing = links.shadowing_db / self._std - self._compute_field(start[None])

    def __call__(self, position: Tensor) -> Tensor:
        """Return the shadowing [R, U, K] in dB at positions [R, U, K, 3]."""
        way = (position - self._start)[..., :2].norm(dim=-1)
        fixed = (-way / self._distance).exp() * self._missing
        return self._std * (self._compute_field(position) + fixed)

    def _compute_field(self, position: Tensor) -> Tensor:
        """Compute G, [R, U, K]."""
        place = position[..., :2] / self._distance[..., None]
        angle = (self._vector * place[..., None, :]).sum(-1) + self._phase
        return angle.cos().sum(-1) * math.sqrt(2.0 / FIELD_WAVES)
