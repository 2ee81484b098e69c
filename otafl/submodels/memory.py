"""Largest model whose training fits into the memory of a device.

Training takes parameters, gradients, momentum, and the activations of a minibatch for the backward
pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from otafl.core.errors import UserError
from otafl.submodels.base import SECTION, SubmodelAssignment, Weights, assign_by_rank

COPIES = 3
"""Copies of the parameters in training: themselves, gradients, momentum."""


class MemoryLevels(SubmodelAssignment):
    """Capacity levels by memory.

    Raises
    ------
    UserError
        If a device or a class of devices cannot hold the smallest model.

    Examples
    --------
    `docs/devices.md` has a scenario with `capacity_levels: memory`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            f"{SECTION}.memory_mb": [64.0, 1.0],
        }

        name: Literal["memory"] = "memory"
        memory_mb: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(None, min_length=1)
        """memory of each class of devices in MiB; that of devices.compute if not given"""
        shares: Weights = None
        """share of the devices in each class, as weights; equal shares if not given"""

        def find_conflicts(self) -> Iterator[str]:
            if self.shares is not None and self.memory_mb is None:
                yield (
                    "shares are those of the classes in memory_mb, which is not given; leave "
                    "shares out, or give memory_mb"
                )

        def count_values(self, levels: int) -> dict[str, int]:
            return {"shares": len(self.memory_mb or ())}

    def get_fixed_levels(self) -> np.ndarray:
        setup = self.setup
        bytes_of = torch.finfo(setup.link.streams.dtype).bits / 8
        need = np.array(
            [
                (COPIES * size.num_params + setup.load.batch_size * size.saved_activations)
                * bytes_of
                / 2**20
                for size in setup.submodels
            ]
        )
        memory = setup.hardware.memory_mb
        what, least = "devices.compute.memory_mb: a device has", memory.min()
        if self.settings.memory_mb is not None:
            classes = np.array(self.settings.memory_mb)
            what, least = f"{SECTION}.memory_mb: got", classes.min()
            place = np.arange(memory.shape[1])
            memory = classes[assign_by_rank(place, self.settings.shares, len(classes))]
        if least < need[-1]:
            raise UserError(
                f"{what} {least:g}, but training the smallest model takes {need[-1]:.3g} MiB; use "
                "more memory, a smaller level or a smaller batch"
            )
        return np.asarray((need <= memory[..., None]).argmax(-1))
