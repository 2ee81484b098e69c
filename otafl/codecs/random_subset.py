"""A random subset of the parameters, fresh for each device and round.

"FedAvg (s.a.r.)" of Wang, Jin, Liu, Zong, Shao, Li, "Tensor Decomposition based Personalized
Federated Learning", section VII-C, which does so in TDPFed's proportion in both directions: this is
the way up, downlink random_subset the way down. On a digital uplink a real is 32 bits; where they
are is told as in `codecs.topk`, or not at all, if both ends draw the same numbers. Over the air the
zeros are sent too.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from otafl.codecs.config import RandomSubsetConfig
from otafl.codecs.rows import known_columns, pairs, require_once, shapes_of
from otafl.codecs.sparse import kept
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.rng import Streams
from otafl.factorised.subsets import bits, chosen
from otafl.models.base import unflatten


class RandomSubset:
    def __init__(self, config: RandomSubsetConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        out = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                require_once(group, "random_subset")
                trial, device = pairs(group, cohort)
                purpose, reals = f"random_subset/{index}", group.reals
                draw = streams.device_uniform(purpose, round, trial, device, (reals,))
                group = self._sent(group, chosen(draw, kept(self.config.keep, reals)))
            out.append(group)
        return tuple(out), memory

    def _sent(self, group: Group, some: Tensor) -> Group:
        """The group with what some [n, P] does not choose at 0, or unknown."""
        x, known = known_columns(group)
        shapes = shapes_of(group)
        blocks = unflatten(x * some, shapes)
        if self.config.fill == "zero":
            return replace(group, blocks=blocks)
        mask = some if known is None else some * known
        return replace(group, blocks=blocks, mask=unflatten(mask, shapes))

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        count = kept(self.config.keep, group.reals)
        return bits(group.reals, count, self.config.positions)
