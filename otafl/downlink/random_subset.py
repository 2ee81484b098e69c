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

from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from otafl.codecs.sparse import Positions, count_kept, count_subset_bits, draw_random_subset
from otafl.core.contracts import Broadcast, Cohort, Tensors
from otafl.core.errors import UserError
from otafl.downlink.base import DOWNLINK, Delivery, Downlink

CHOICE = DOWNLINK / "random_subset"


class RandomSubsetDownlink(Downlink):
    class Settings(Downlink.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1)
        """share of the numbers that a device gets"""
        positions: Positions = True

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        if broadcast.coordinates_per_row is not None:
            raise UserError(
                "downlink: 'random_subset' sends a part of one model to all devices, and the "
                "algorithm sends each device a model of its own size; ideal or analog would do"
            )
        reals = broadcast.num_coordinates
        count = count_kept(self.settings.keep, reals)
        bits = count_subset_bits(reals, count, self.settings.positions)
        sent = np.array(cohort.counts, dtype=float) * bits

        def thin(blocks: Tensors, cohort: Cohort, place: Tensor) -> None:
            """Let the rows hear `count` of the numbers, and 0 for the others."""
            pair = cohort.trial, cohort.device
            draw = self.setup.streams.draw_device_uniform(CHOICE, round, *pair, (reals,))
            sizes = [block[0].numel() for block in blocks.values()]
            parts = draw_random_subset(draw, count).split(sizes, 1)
            for block, some in zip(blocks.values(), parts, strict=True):
                block.mul_(some.view_as(block))

        return Delivery(broadcast, sent / self.setup.rate_bps, sent, thin)
