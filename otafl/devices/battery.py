"""Account for a device's battery: charge between zero and capacity, filled by a constant harvest
and emptied by what the device draws, which changes at instants that are known beforehand."""

from __future__ import annotations

import math
from collections.abc import Sequence

Draw = tuple[float, float]
"""(instant in seconds, watts drawn from then on)."""


class Battery:
    """Keep the charge of a battery.

    charge_j: at `at_s`, the instant up to which it is accounted for. harvested_j: taken up so far;
    what comes while the battery is full is not.
    """

    __slots__ = ("_draw_w", "_harvest_w", "_plan", "at_s", "capacity_j", "charge_j", "harvested_j")

    def __init__(self, capacity_j: float, charge_j: float, harvest_w: float) -> None:
        self.capacity_j, self.charge_j = capacity_j, charge_j
        self.at_s, self.harvested_j = 0.0, 0.0
        self._harvest_w = harvest_w
        self._draw_w = 0.0
        self._plan: list[Draw] = []

    def take_over(self, at_s: float, harvested_j: float, draw_w: float) -> None:
        """Take over from who accounted for the battery until `at_s`, while it gives `draw_w`."""
        self.at_s, self.harvested_j, self._draw_w = at_s, harvested_j, draw_w

    def plan(self, now_s: float, draws: Sequence[Draw]) -> float:
        """Plan what is drawn from now on, in place of what was planned. Return the instant at which
        the battery will be empty, inf if it will not."""
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
        """Account for everything until now; return the charge in J."""
        while self._plan and self._plan[0][0] <= now_s:
            start, draw = self._plan.pop(0)
            self._advance(start)
            self._draw_w = draw
        self._advance(now_s)
        return self.charge_j

    def compute_seconds_to(self, charge_j: float) -> float:
        """Return the seconds until the harvest alone has filled it so far; inf without any."""
        if not self._harvest_w:
            return math.inf
        return max(0.0, charge_j - self.charge_j) / self._harvest_w

    def _compute_empty_s(self, at: float, charge: float, draw: float) -> float:
        falls = draw - self._harvest_w
        return at + max(0.0, charge) / falls if falls > 0 else math.inf

    def _advance(self, to_s: float) -> None:
        seconds = to_s - self.at_s
        if seconds <= 0:
            return
        drawn = self._draw_w * seconds
        # rounding may leave it a hair below zero at the instant at which it is empty
        charge = self.charge_j + self._harvest_w * seconds - drawn
        charge = min(self.capacity_j, max(0.0, charge))
        self.harvested_j += charge - self.charge_j + drawn
        self.charge_j, self.at_s = charge, to_s
