"""Signs, of which the server takes the majority vote (one-bit aggregation).

Devices send the signs of their gradients, one on each quadrature of a QPSK symbol
(`transport.quadrature: true`; otherwise one per symbol). The sign of the received sum is their
vote, and the server takes a step along it. Zero counts as +1, also in a tie. If signs with sum v
are received with gain c and noise of variance N / eta, the vote is wrong with probability

    Q(c |v| sqrt(eta / N)).

Devices send their sign times the step, so that a transport that delivers each update needs no vote.

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
    """One-bit aggregation by majority vote. Study: `studies/published/majority_votes.yaml`."""

    sends_sums = True

    state_attrs: ClassVar = ("_voted",)

    class Settings(Codec.Settings):
        name: Literal["obda"] = "obda"
        step: float = declare_stackable(0.001, gt=0)
        """size of the server's step along each sign"""
        vote: Literal["majority", "weighted"] = "majority"
        """weight of a vote: one per device (majority), or the device's share of the samples
        (weighted)"""

        @property
        def assumes_increments(self) -> str:
            return VOTES

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._voted: set[int] = set()

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return `step` times the signs of the rows."""
        if group.weighting != "mean":
            raise UserError(
                "codec.name: 'obda' gives the server a vote, but the algorithm needs the sum of "
                "the updates; use another codec"
            )
        self._voted.add(index)
        step = self.hyper["step"][get_trial_device(group, context.cohort)[0]]
        blocks = {name: _apply_signs(step, block) for name, block in group.tensors.items()}
        # a plain sum counts every device once, and of equal signs it is exact
        equal = self.settings.vote == "majority"
        return replace(group, tensors=blocks, weighting="equal" if equal else "mean"), memory

    def decode(self, received: Received) -> Received:
        """Return the votes instead of the sums; the delivered weight does not change."""
        means = list(received.mean)
        for index in self._voted:
            means[index] = {
                name: self._compute_vote(block, received.delivered_weight(index, name))
                for name, block in received.mean[index].items()
            }
        return replace(received, mean=tuple(means))

    def _compute_vote(self, block: Tensor, weight: Tensor) -> Tensor:
        """Return the step for which sums [S, *shape] vote; 0 without delivered weight."""
        return _apply_signs(self.hyper["step"], block) * (weight > 0)

    def count_bits(self, group: Group) -> float:
        return float(group.num_coordinates)


def _apply_signs(step: Tensor, block: Tensor) -> Tensor:
    """Return step [n] with the signs of a tensor [n, *shape], + for zero."""
    size = unsqueeze_like(step, block).expand_as(block)
    return torch.where(block >= 0, size, -size)
