"""Make devices of several kinds, dealt out by their shares or drawn.

`classes: [2e9, 4e9, 8e9]` with as many numbers as devices says each device's speed. What a class
does not say of itself, the section says.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    NumericCompute,
    OwnQuantities,
    build_common_columns,
    list_owned,
)


class ComputeClass(OwnQuantities):
    """Describe devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0)
    """operations a second of a device of this class"""
    share: float = Field(1.0, gt=0)
    """share of the devices, as a weight (shares need not sum to one)"""


def _parse_speed(value: Any) -> Any:
    return {"flops_per_s": value} if isinstance(value, int | float | str) else value


_Class = Annotated[
    ComputeClass, BeforeValidator(_parse_speed, json_schema_input_type=ComputeClass | float)
]


class Classes(NumericCompute):
    example: ClassVar = {"devices.compute.classes": [{"flops_per_s": 1e9}, {"flops_per_s": 1e8}]}

    name: Literal["classes"] = "classes"
    classes: tuple[_Class, ...] = Field(min_length=1)
    """the classes: a mapping each, or the speed alone"""
    assignment: Literal["in_order", "random"] = "in_order"
    """in_order deals devices out so that each class keeps to its share as closely as can be (equal
    shares: in turn); random draws each device's class with its share"""

    def has_frequency_scaling(self) -> bool:
        own = list_owned(self.classes, self, ("frequency_min_share",))
        return bool(np.min(own.get("frequency_min_share", self.frequency_min_share)) < 1)

    @property
    def is_in_order(self) -> bool:
        return self.assignment == "in_order"

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        of = self._assign_classes(devices, generator)
        own = list_owned(self.classes, self, ("flops_per_s", *QUANTITIES))
        return build_common_columns(self, devices, 0.0) | {
            name: values[of] for name, values in own.items()
        }

    def _assign_classes(self, devices: int, generator: np.random.Generator) -> np.ndarray:
        """Return each device's class, [K] int64."""
        shares = np.array([one.share for one in self.classes])
        shares = shares / shares.sum()
        if self.assignment == "random":
            of = np.searchsorted(np.cumsum(shares), generator.random(devices), side="right")
            return np.minimum(of, len(shares) - 1)  # round-off may leave the sum below 1
        of = np.empty(devices, dtype=np.int64)
        num_assigned = np.zeros(len(shares))
        for device in range(devices):
            behind = (device + 1) * shares - num_assigned
            of[device] = np.argmax(behind)
            num_assigned[of[device]] += 1
        return of
