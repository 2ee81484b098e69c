"""Random subset of the parameters for each device, drawn for each device and round.

The numbers arrive without error, at one device after the other. A device takes parameters that are
not sent for 0, because it has no earlier model. This is the downlink of TDPFed's reference "FedAvg
(s.a.r.)"; codec random_subset is its uplink.

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
from otafl.downlink.base import DOWNLINK, WORD, Delivery, Downlink

CHOICE = DOWNLINK / "random_subset"


class RandomSubsetDownlink(Downlink):
    """Random subsets of the parameters, for each device."""

    class Settings(Downlink.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1)
        """fraction of the numbers that a device receives"""
        positions: Positions = True

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        """Send a subset to one device after the other."""
        if broadcast.coordinates_per_row is not None:
            raise UserError(
                "downlink: 'random_subset' sends a part of one model to all devices, and the "
                "algorithm sends each device a model of its own size; use ideal or analog"
            )
        num_coordinates = broadcast.num_coordinates
        count = count_kept(self.settings.keep, num_coordinates)
        side = WORD * broadcast.side_coordinates
        bits = side + count_subset_bits(num_coordinates, count, self.settings.positions)
        sent = np.array(cohort.counts, dtype=float) * bits

        def thin(blocks: Tensors, cohort: Cohort, place: Tensor) -> None:
            """Set all but `count` random numbers of each row to 0."""
            pair = cohort.trial, cohort.device
            draw = self.setup.streams.draw_device_uniform(CHOICE, round, *pair, (num_coordinates,))
            sizes = [block[0].numel() for block in blocks.values()]
            parts = draw_random_subset(draw, count).split(sizes, 1)
            for block, some in zip(blocks.values(), parts, strict=True):
                block.mul_(some.view_as(block))

        return Delivery(broadcast, sent / self.setup.rate_bps, sent, thin)
