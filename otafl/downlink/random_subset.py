"""Send each device a random subset of the model, drawn anew for each device and round.

The numbers arrive without error, to one device after the other; those that are not sent a device
takes for 0, as it has no model of its own to keep. The way down of FedAvg (s.a.r.), TDPFed's rival,
of which codec random_subset is the way up.

References
----------
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    section VII-C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from otafl.codecs.subsets import kept, positions, random_subset, subset_bits
from otafl.core import settings
from otafl.core.contracts import Blocks, Broadcast, Cohort
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.downlink.base import DOWNLINK, Arrival, Distortion, Downlink

CHOICE = DOWNLINK / "random_subset"


@dataclass(frozen=True)
class Thinning(Distortion):
    """Let the rows of a cohort hear `count` of the `reals` numbers of x, and 0 for the others."""

    count: int
    reals: int
    streams: Streams
    round: int

    def on(self, blocks: Blocks, cohort: Cohort, start: int, stop: int) -> None:
        draw = self.streams.device_uniform(
            CHOICE, self.round, cohort.trial, cohort.device, (self.reals,)
        )
        sizes = [block[0].numel() for block in blocks.values()]
        parts = random_subset(draw, self.count).split(sizes, 1)
        for block, some in zip(blocks.values(), parts, strict=True):
            block.mul_(some.view_as(block))


class RandomSubsetDownlink(Downlink):
    class Settings(settings.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1, description="share of the numbers that a device gets")
        positions: bool = positions()

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        if broadcast.reals_of is not None:
            raise UserError(
                "downlink: 'random_subset' sends a part of one model to all devices, and the "
                "algorithm sends each device a model of its own size; ideal or analog would do"
            )
        reals = broadcast.reals
        count = kept(self.settings.keep, reals)
        bits = subset_bits(reals, count, self.settings.positions)
        sent = np.array(cohort.counts, dtype=float) * bits
        thinning = Thinning(count, reals, self.setup.streams, round)
        return Arrival(broadcast, sent / self.setup.rate_bps, sent, thinning)
