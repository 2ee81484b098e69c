"""The payload as it is, in 32-bit floating point where bits count."""

from __future__ import annotations

from otafl.codecs.config import IdentityConfig
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.rng import Streams


class Identity:
    def __init__(self, config: IdentityConfig, hyper: Hyper, streams: Streams) -> None:
        pass

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        return payload, memory

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        return 32.0 * group.reals
