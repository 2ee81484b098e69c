"""Sort the samples by label, cut them into equal shards and deal a few out to each device.

References
----------
McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    section 3.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from otafl.data.dealt import Dealt, spans
from otafl.data.partitions.base import Counts, Deck, Partition


class Shards(Partition):
    """Deal shards out at random; their sizes differ by at most one."""

    name: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1)
    """shards each device gets"""

    def fits(self, counts: Counts) -> None:
        counts.check_each("shards_per_device", self.shards_per_device)

    def deal(self, deck: Deck) -> Dealt:
        self.fits(deck.counts)
        each, devices = self.shards_per_device, deck.devices
        shuffled = deck.shuffled()  # which of a class's samples share a shard
        order = shuffled[np.argsort(deck.labels[shuffled], kind="stable")]
        shards = Dealt.evenly(order, devices * each)
        hands = deck.generator.permutation(devices * each)
        sizes = shards.counts[hands]
        return Dealt(order[spans(shards.starts[hands], sizes)], sizes.reshape(devices, each).sum(1))
