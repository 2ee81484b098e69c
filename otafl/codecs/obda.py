"""One-bit over-the-air aggregation with majority vote.

Zhu, Du, Gunduz, Huang 2021, "One-Bit Over-the-Air Aggregation for Communication-Efficient Federated
Edge Learning: Design and Convergence Analysis": devices send the signs of their gradients, one on
each quadrature of a QPSK symbol (`transport.quadrature: true`; else one a symbol), and the server
takes the sign of the received sum as their vote, and a step along it. Zero counts as +1, a tie's
too. Where signs that sum to v are received with gain c and noise of variance N / eta, the vote is
wrong with probability Q(c |v| sqrt(eta / N)).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.config import ObdaConfig
from otafl.codecs.rows import pairs, require_once
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.errors import UserError
from otafl.core.rng import Streams


class Obda:
    """What devices send is step times a sign already, so that devices told apart need no vote."""

    def __init__(self, config: ObdaConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        self._step = hyper["step"]
        self._voted: list[bool] = []

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        self._voted = [group.route == "uplink" for group in payload]
        return tuple(
            self._signs(group, cohort) if group.route == "uplink" else group for group in payload
        ), memory

    def _signs(self, group: Group, cohort: Cohort) -> Group:
        if group.weighting != "mean":
            raise UserError(
                "codec.name: 'obda' gives the server a vote, and the algorithm asks for the sum "
                "of what devices send; use another codec"
            )
        require_once(group, "obda")
        step = self._step[pairs(group, cohort)[0]]
        blocks = {name: _signed(step, block) for name, block in group.blocks.items()}
        # a plain sum counts every device once, and of equal signs it is exact
        equal = self.config.vote == "majority"
        return replace(group, blocks=blocks, weighting="none" if equal else "mean")

    def decode(self, received: Received) -> Received:
        means, counts = list(received.mean), list(received.count)
        for index, voted in enumerate(self._voted):
            if voted:
                count = counts[index]
                means[index] = {
                    name: self._vote(block, count[name] if isinstance(count, dict) else count)
                    for name, block in means[index].items()
                }
                if self.config.vote == "majority":  # out of 1 again, as of a mean
                    counts[index] = _anyone(count)
        return replace(received, mean=tuple(means), count=tuple(counts))

    def _vote(self, block: Tensor, count: Tensor) -> Tensor:
        """Of sums [S, *shape]; 0 where nothing arrived."""
        some = count.view(-1, *[1] * (block.dim() - 1)) if count.dim() == 1 else count
        return _signed(self._step, block) * (some > 0)

    def bits(self, group: Group) -> float:
        return float(group.reals)


def _signed(step: Tensor, block: Tensor) -> Tensor:
    """step [n] with the signs of [n, *shape], + for zero."""
    size = step.view(-1, *[1] * (block.dim() - 1)).expand_as(block)
    return torch.where(block >= 0, size, -size)


def _anyone(count: Tensor | Blocks) -> Tensor | Blocks:
    if isinstance(count, dict):
        return {name: (value > 0).to(value.dtype) for name, value in count.items()}
    return (count > 0).to(count.dtype)
