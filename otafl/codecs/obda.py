"""Send signs, of which the server takes the majority vote (one-bit aggregation).

Devices send the signs of their gradients, one on each quadrature of a QPSK symbol
(`transport.quadrature: true`; else one a symbol), and the server takes the sign of the received sum
as their vote, and a step along it. Zero counts as +1, a tie's too. Where signs that sum to v are
received with gain c and noise of variance N / eta, the vote is wrong with probability
Q(c |v| sqrt(eta / N)). What devices send is step times a sign already, so that devices told apart
need no vote.

References
----------
Zhu, Du, Gunduz, Huang 2021, "One-Bit Over-the-Air Aggregation for Communication-Efficient Federated
    Edge Learning: Design and Convergence Analysis".
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.codecs.base import VOTES, Codec, EncodedGroup, get_trial_device
from otafl.core.contracts import Context, Group, Hyper, Received, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable


class Obda(Codec):
    sends_sums = True

    state_attrs: ClassVar = ("_voted",)

    class Settings(Codec.Settings):
        name: Literal["obda"] = "obda"
        step: float = declare_stackable(0.001, gt=0)
        """size of the step that the server takes along each sign"""
        vote: Literal["majority", "weighted"] = "majority"
        """one vote a device, or votes weighted by its share of the samples"""

        @property
        def assumes_increments(self) -> str:
            return VOTES

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._voted: set[int] = set()

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        if group.weighting != "mean":
            raise UserError(
                "codec.name: 'obda' gives the server a vote, and the algorithm asks for the sum "
                "of what devices send; use another codec"
            )
        self._voted.add(index)
        step = self.hyper["step"][get_trial_device(group, context.cohort)[0]]
        blocks = {name: _apply_signs(step, block) for name, block in group.tensors.items()}
        # a plain sum counts every device once, and of equal signs it is exact
        equal = self.settings.vote == "majority"
        return replace(group, tensors=blocks, weighting="equal" if equal else "mean"), memory

    def decode(self, received: Received) -> Received:
        """Return the votes in the place of the sums; the weight that arrived stays what it is."""
        means = list(received.mean)
        for index in self._voted:
            means[index] = {
                name: self._compute_vote(block, received.delivered_weight(index, name))
                for name, block in received.mean[index].items()
            }
        return replace(received, mean=tuple(means))

    def _compute_vote(self, block: Tensor, weight: Tensor) -> Tensor:
        """Return the step that sums [S, *shape] vote for; 0 where no weight [S, *shape] arrived."""
        return _apply_signs(self.hyper["step"], block) * (weight > 0)

    def count_bits(self, group: Group) -> float:
        return float(group.num_coordinates)


def _apply_signs(step: Tensor, block: Tensor) -> Tensor:
    """Return step [n] with the signs of [n, *shape], + for zero."""
    size = unsqueeze_like(step, block).expand_as(block)
    return torch.where(block >= 0, size, -size)
