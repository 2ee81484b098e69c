"""Shadow fading and lines of sight as random fields over the cell."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.cell_drop import CellDrop
from otafl.channels.ofdm import Pairs
from otafl.core.rng import declare_purpose

SHADOWING = declare_purpose("shadowing", __name__)
CLEAR = declare_purpose("clear_field", __name__)
LEVEL = declare_purpose("clear_level", __name__)

FIELD_WAVES = 128
"""Number of cosines in a field."""


class NormalField:
    """Standard normal variables by position, with given values at the positions of the drop.

    Parameters
    ----------
    uniform : Tensor, float64 [U, K, waves, 3]
        Uniform numbers of each device's cosines, equal for devices with the same field G.
    value : Tensor, float64 [U, K]
        Values g_0 at the positions of the drop.
    start : Tensor, float64 [U, K, 3]
        Those positions x_0 in metres.
    distance_m : Tensor, float64 [U, K]
        Correlation distances d_cor.

    Notes
    -----
    Fields G of unit variance are sums of cosines. Because exp(-d) is the characteristic function of
    the planar Cauchy distribution, wave vectors have the radius sqrt(1 / (1 - u)^2 - 1) for a
    uniform u. Conditioned on g_0 at x_0, the field is

    .. math::

        G(x) + e^{-|x - x_0| / d_{cor}} (g_0 - G(x_0))
    """

    def __init__(self, uniform: Tensor, value: Tensor, start: Tensor, distance_m: Tensor) -> None:
        radius = (1.0 / (1.0 - uniform[..., 0]) ** 2 - 1.0).sqrt()
        heading = 2.0 * math.pi * uniform[..., 1]
        self._vector = torch.stack([radius * heading.cos(), radius * heading.sin()], -1)
        self._phase = 2.0 * math.pi * uniform[..., 2]
        self._start, self._distance = start, distance_m
        self._missing = value - self._compute_field(start[None])

    def __call__(self, position: Tensor) -> Tensor:
        """Return the values [R, U, K] at positions [R, U, K, 3]."""
        way = (position - self._start)[..., :2].norm(dim=-1)
        fixed = (-way / self._distance).exp() * self._missing
        return self._compute_field(position) + fixed

    def _compute_field(self, position: Tensor) -> Tensor:
        """Compute G, [R, U, K]."""
        place = position[..., :2] / self._distance[..., None]
        angle = (self._vector * place[..., None, :]).sum(-1) + self._phase
        return angle.cos().sum(-1) * math.sqrt(2.0 / FIELD_WAVES)


class ShadowingField:
    """Shadow fading by position, normal in dB.

    Its correlation over a distance d is exp(-d / d_cor), and it has Sionna's value at the position
    of the drop. There is one field each for line of sight, no line of sight, and indoors.

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
    """

    def __init__(self, links: CellDrop, start: Tensor, indoor: Tensor, pairs: Pairs) -> None:
        kind = torch.where(links.line_of_sight, 0, torch.where(indoor, 2, 1))
        self._std, distance_m = links.shadowing_std_db, links.shadowing_distance_m
        value = links.shadowing_db / self._std
        uniform = pairs.streams.draw_uniform(SHADOWING, 0, (3, FIELD_WAVES, 3))[pairs.rows].double()
        trial = torch.arange(len(kind), device=kind.device)[:, None]
        self._field = NormalField(uniform[trial, kind], value, start, distance_m)

    def __call__(self, position: Tensor) -> Tensor:
        """Return the shadowing [R, U, K] in dB at positions [R, U, K, 3]."""
        return self._std * self._field(position)


class ClearField:
    """Lines of sight by position, with those of the drop at its positions.

    There is one where Phi(g) is below the probability at the position, for a standard normal field
    g whose correlation over a distance d is exp(-d / d_cor) (TR 38.901, 7.6.3.3).

    Parameters
    ----------
    clear : Tensor, bool [U, K]
        Lines of sight in the drop.
    probability : Tensor, float64 [U, K]
        Their probabilities there.
    start : Tensor, float64 [U, K, 3]
        Positions in the drop, in metres.
    distance_m : float
        Correlation distance d_cor.
    pairs : Pairs
        Random streams of the pairs.
    """

    def __init__(
        self, clear: Tensor, probability: Tensor, start: Tensor, distance_m: float, pairs: Pairs
    ) -> None:
        share = pairs.draw_static_uniform(LEVEL, ()).double()
        hidden = probability + share * (1.0 - probability)
        level = torch.where(clear, share * probability, hidden).clamp(1e-12, 1.0 - 1e-12)
        distance, value = torch.full_like(level, distance_m), torch.special.ndtri(level)
        uniform = pairs.streams.draw_uniform(CLEAR, 0, (1, FIELD_WAVES, 3))[pairs.rows].double()
        self._field = NormalField(uniform, value, start, distance)

    def __call__(self, position: Tensor, probability: Tensor) -> Tensor:
        """Return the lines of sight [R, U, K] at positions with these probabilities."""
        return torch.special.ndtr(self._field(position)) < probability
