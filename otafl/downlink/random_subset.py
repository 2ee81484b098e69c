"""The downlink of "FedAvg (s.a.r.)": a random subset of the parameters, fresh for each device and
round (Wang, Jin, Liu, Zong, Shao, Li, "Tensor Decomposition based Personalized Federated Learning",
section VII-C). What is not sent is 0 at the device, which has no model of its own to keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otafl.core.contracts import Broadcast, Cohort
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.downlink.config_subset import RandomSubsetDownlinkConfig
from otafl.downlink.downlink import Arrival, DownlinkSetup
from otafl.factorised.subsets import bits, chosen


@dataclass(frozen=True, kw_only=True)
class Thinned(Arrival):
    """An arrival of `count` of all numbers at each device."""

    count: int
    round: int
    streams: Streams

    def rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        own = self.sent.rows(cohort, start, stop)
        trial, device = cohort.trial[start:stop], cohort.device[start:stop]
        draw = self.streams.device_uniform(
            "downlink/random_subset", self.round, trial, device, (own.reals,)
        )
        sizes = [block[0].numel() for block in own.blocks.values()]
        parts = chosen(draw, self.count).split(sizes, 1)
        for block, some in zip(own.blocks.values(), parts, strict=True):
            block.mul_(some.view_as(block))
        return own


class RandomSubsetDownlink:
    def __init__(self, config: RandomSubsetDownlinkConfig, setup: DownlinkSetup) -> None:
        self._config, self._setup = config, setup

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        if broadcast.reals_of is not None:
            raise UserError(
                "downlink: 'random_subset' sends a part of one model to all devices, and the "
                "algorithm sends each device a model of its own size; ideal or analog would do"
            )
        count = max(1, int(np.rint(self._config.keep * broadcast.reals)))
        each = bits(broadcast.reals, count, self._config.positions)
        copies = np.array(cohort.counts, dtype=float)
        return Thinned(
            sent=broadcast,
            seconds=copies * each / self._setup.rate_bps,
            bits=copies * each,
            noise=None,
            count=count,
            round=round,
            streams=self._setup.streams,
        )
