"""Make devices of several kinds, dealt out by their shares or drawn.

`classes: [2e9, 4e9, 8e9]` with as many numbers as devices says each device's speed. What a class
does not say of itself, the section says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    NumericCompute,
    OwnQuantities,
    common,
    filled,
)


class ComputeClass(OwnQuantities):
    """Describe devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0, description="operations a second of a device of this class")
    share: float = Field(
        1.0, gt=0, description="share of the devices, as a weight (shares need not sum to one)"
    )


def _plain_speed(value: Any) -> Any:
    return {"flops_per_s": value} if isinstance(value, int | float | str) else value


_Class = Annotated[
    ComputeClass, BeforeValidator(_plain_speed, json_schema_input_type=ComputeClass | float)
]


class Classes(NumericCompute):
    example: ClassVar[Mapping[str, Any]] = {
        "devices.compute.classes": [{"flops_per_s": 1e9}, {"flops_per_s": 1e8}]
    }

    name: Literal["classes"] = "classes"
    classes: tuple[_Class, ...] = Field(
        min_length=1, description="the classes: a mapping each, or the speed alone"
    )
    assignment: Literal["in_order", "random"] = Field(
        "in_order",
        description="in_order deals devices out so that each class keeps to its share as closely "
        "as can be (equal shares: in turn); random draws each device's class with its share",
    )

    def scales(self) -> bool:
        own = (one.frequency_min_share for one in self.classes)
        return any((self.frequency_min_share if one is None else one) < 1 for one in own)

    def columns(self, devices: int, generator: np.random.Generator) -> Columns:
        of = self._of(devices, generator)
        columns = common(self, devices, np.array([one.flops_per_s for one in self.classes])[of])
        for name in QUANTITIES:
            own = [getattr(one, name) for one in self.classes]
            if any(value is not None for value in own):
                columns[name] = filled(own, getattr(self, name))[of]
        return columns

    def _of(self, devices: int, generator: np.random.Generator) -> np.ndarray:
        """Return each device's class, [K] int64."""
        shares = np.array([one.share for one in self.classes])
        shares = shares / shares.sum()
        if self.assignment == "random":
            of = np.searchsorted(np.cumsum(shares), generator.random(devices), side="right")
            return np.minimum(of, len(shares) - 1)  # round-off may leave the sum below 1
        of = np.empty(devices, dtype=np.int64)
        dealt = np.zeros(len(shares))
        for device in range(devices):
            behind = (device + 1) * shares - dealt
            of[device] = np.argmax(behind)
            dealt[of[device]] += 1
        return of
