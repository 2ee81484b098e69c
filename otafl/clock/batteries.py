"""Battery of a device, whose draw changes at known instants."""

from __future__ import annotations

import math
from collections.abc import Sequence

Draw = tuple[float, float]
"""Instant in seconds, and power in W that is drawn from then on."""


class Battery:
    """Battery of a device: a charge between zero and the capacity.

    A constant harvest fills it. The draw of the device empties it, and changes at instants that are
    known in advance.

    Parameters
    ----------
    capacity_j : float
        Capacity in joules.
    charge_j : float
        Charge at time 0.
    harvest_w : float
        Power that charges the battery.
    draw_w : float
        Power that is drawn from time 0 on.

    Attributes
    ----------
    at_s : float
        Instant of the last update of the charge.
    harvested_j : float
        Harvested energy so far, without what a full battery cannot store.
    """

    __slots__ = ("_draw_w", "_harvest_w", "_plan", "at_s", "capacity_j", "charge_j", "harvested_j")

    def __init__(
        self, capacity_j: float, charge_j: float, harvest_w: float, draw_w: float = 0.0
    ) -> None:
        self.capacity_j, self.charge_j = capacity_j, charge_j
        self.at_s, self.harvested_j = 0.0, 0.0
        self._harvest_w = harvest_w
        self._draw_w = draw_w
        self._plan: list[Draw] = []

    def plan(self, now_s: float, draws: Sequence[Draw]) -> float:
        """Replace the planned draw from now on.

        Parameters
        ----------
        now_s : float
            Current instant.
        draws : Sequence of Draw
            Instants at which the draw changes, and the power from then on.

        Returns
        -------
        float
            Instant at which the battery will be empty, inf if never.
        """
        self.update_charge(now_s)
        self._plan = list(draws)
        at, charge, draw = now_s, self.charge_j, self._draw_w
        for start, next_draw in draws:
            empty_s = self._compute_empty_s(at, charge, draw)
            if empty_s < start:
                return empty_s
            charge = min(self.capacity_j, charge + (self._harvest_w - draw) * (start - at))
            at, draw = start, next_draw
        return self._compute_empty_s(at, charge, draw)

    def update_charge(self, now_s: float) -> float:
        """Update the charge until now, and return it in joules."""
        while self._plan and self._plan[0][0] <= now_s:
            start, draw = self._plan.pop(0)
            self._advance(start)
            self._draw_w = draw
        self._advance(now_s)
        return self.charge_j

    def compute_seconds_to(self, charge_j: float) -> float:
        """Compute the seconds until the harvest alone reaches a charge, inf without harvest."""
        if not self._harvest_w:
            return math.inf
        return max(0.0, charge_j - self.charge_j) / self._harvest_w

    def _compute_empty_s(self, at: float, charge: float, draw: float) -> float:
        """Compute the instant at which a charge is used up, inf if it does not fall."""
        falls = draw - self._harvest_w
        return at + max(0.0, charge) / falls if falls > 0 else math.inf

    def _advance(self, to_s: float) -> None:
        """Advance the charge to an instant with the current draw."""
        seconds = to_s - self.at_s
        if seconds <= 0:
            return
        drawn = self._draw_w * seconds
        # rounding can give a slightly negative charge when the battery is empty
        charge = self.charge_j + self._harvest_w * seconds - drawn
        charge = min(self.capacity_j, max(0.0, charge))
        self.harvested_j += charge - self.charge_j + drawn
        self.charge_j, self.at_s = charge, to_s
