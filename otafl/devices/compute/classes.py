"""Several kinds of devices, assigned by their shares or at random.

`classes: [2e9, 4e9, 8e9]` with as many numbers as devices gives each device its speed. A class
without a quantity of its own has that of the section.
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
    """Devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0)
    """operations per second of a device of this class"""
    share: float = Field(1.0, gt=0)
    """share of the devices, as a weight; shares need not sum to one"""


def _parse_speed(value: Any) -> Any:
    """Return a plain number as a class with this speed."""
    return {"flops_per_s": value} if isinstance(value, int | float | str) else value


_Class = Annotated[
    ComputeClass, BeforeValidator(_parse_speed, json_schema_input_type=ComputeClass | float)
]


class Classes(NumericCompute):
    """Kinds of devices with different quantities."""

    example: ClassVar = {"devices.compute.classes": [{"flops_per_s": 1e9}, {"flops_per_s": 1e8}]}

    name: Literal["classes"] = "classes"
    classes: tuple[_Class, ...] = Field(min_length=1)
    """the classes, a mapping or only the speed each"""
    assignment: Literal["in_order", "random"] = "in_order"
    """assignment of the devices to the classes. in_order: each class gets its share as exactly as
    possible, in turn if shares are equal. random: the class of each device is drawn with the shares
    as probabilities"""

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
        """Return the class of each device, [K] int64."""
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
