"""Largest model that a device can train and send within a deadline.

A device sends 32 bits a parameter at its estimated rate in the round, and participants share the
band in turns. It trains the smallest model if no model is fast enough.
"""

from __future__ import annotations

import functools
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.submodels.base import SECTION, SubmodelAssignment, SubmodelSetup

WORD = 32.0
"""Bits of a parameter."""


class DeadlineLevels(SubmodelAssignment):
    """Capacity levels by a deadline.

    Notes
    -----
    Level l with P_l parameters and C_l operations takes, on a device of f operations a second, with
    the rate r of its share of the band,

    .. math::

        C_l / f + 32 P_l / r

    seconds. The device trains the first level that takes at most the deadline.

    Examples
    --------
    `docs/devices.md` has a scenario with `capacity_levels: deadline`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            f"{SECTION}.seconds": 1.0,
        }

        name: Literal["deadline"] = "deadline"
        seconds: float = Field(gt=0)
        """seconds for local work and upload together"""

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        streams = setup.link.streams
        new = functools.partial(torch.tensor, dtype=streams.dtype, device=streams.device)
        self._bits = new([WORD * size.num_params for size in setup.submodels])
        self._speed = new(setup.hardware.flops_per_s.ravel())

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        link = self.setup.link
        snr = link.estimate_snr(state, round).flatten()[cohort.flat_index]
        band = link.budget.bandwidth_hz[cohort.trial] / cohort.rows_per_trial[cohort.trial]
        rate = (band * torch.log2(1.0 + snr)).clamp_min(1e-30)
        load = self.setup.load.select_devices(cohort.flat_index.cpu().numpy())
        flops = np.stack([size.flops_fn(load) for size in self.setup.submodels], 1)
        work = torch.from_numpy(flops).to(self._speed) / self._speed[cohort.flat_index, None]
        seconds = work + self._bits / rate[:, None]
        late = (seconds > self.settings.seconds).long()
        return late.cumprod(1).sum(1).clamp_max(len(self._bits) - 1)  # the first in time
