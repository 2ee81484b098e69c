"""Uniform quantisation of each block of each device between its smallest and largest value: Q(x)
= beta + alpha round((2^b - 1)(x - beta)/alpha)/(2^b - 1), beta = min, alpha = max - min (FedRLR,
baseline 4). The two ends travel as floats beside the block."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from otafl.codecs.config import UniformConfig
from otafl.contracts import Blocks, Cohort, Group, Payload, Received
from otafl.rng import Streams


class Uniform:
    def __init__(self, config: UniformConfig) -> None:
        self.config = config

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        levels = 2**self.config.bits - 1
        return tuple(
            replace(group, blocks={n: quantise(b, levels) for n, b in group.blocks.items()})
            if group.route == "uplink"
            else group
            for group in payload
        ), memory

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        return float(self.config.bits * group.reals + 64 * len(group.blocks))


def quantise(block: Tensor, levels: int) -> Tensor:
    """Each row of [n, *shape] rounded to `levels` + 1 equidistant values between its extremes; a
    constant row stays as it is."""
    rows = block.flatten(1)
    low, high = rows.aminmax(dim=1, keepdim=True)
    step = (high - low) / levels
    safe = step.where(step > 0, 1.0)
    return (low + step * ((rows - low) / safe).round()).view_as(block)
