"""Top-k sparsification with error feedback.

Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory"; Aji and Heafield 2017, "Sparse
Communication for Distributed Gradient Descent". On a digital uplink a kept real is 32 bits, and
where they are is told by a list of positions of ceil(log2 n) bits or by a map of n bits, whichever
is shorter. Over the air the zeros are sent too.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from otafl.codecs.config import TopKConfig
from otafl.codecs.rows import known_columns, require_once, shapes_of
from otafl.codecs.sparse import Feedback, kept
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import top
from otafl.models.base import unflatten


class TopK:
    def __init__(self, config: TopKConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        self._feedback = Feedback(config.error_feedback)

    def init(self, payload: Payload) -> Blocks:
        return self._feedback.init(payload)

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        out = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                require_once(group, "topk")
                x, mask = known_columns(group)
                a = self._feedback.before(x, mask, group, index, memory)
                parts = a.split(self._scopes(group), 1)
                sent = torch.cat(
                    [top(part, kept(self.config.keep, part.shape[1])) for part in parts], 1
                )
                memory = self._feedback.after(a, sent, mask, group, index, memory)
                group = replace(group, blocks=unflatten(sent, shapes_of(group)))
            out.append(group)
        return tuple(out), memory

    def _scopes(self, group: Group) -> list[int]:
        """Reals among which the largest are chosen."""
        if self.config.scope == "payload":
            return [group.reals]
        return [block.flatten(1).shape[1] for block in group.blocks.values()]

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        total = 0
        for reals in self._scopes(group):
            count = kept(self.config.keep, reals)
            total += 32 * count
            if count < reals:
                total += min(count * (reals - 1).bit_length(), reals)
        return float(total)
