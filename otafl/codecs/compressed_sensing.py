"""Sparse updates as random projections, summed over the air and recovered from the sum.

Amiri and Gunduz 2020, "Machine Learning at the Wireless Edge: Distributed Stochastic Gradient
Descent Over-the-Air", A-DSGD: a device adds its memory, keeps the k largest magnitudes, sends A x_k
with a Gaussian A that all share, and the server recovers sum x_k from A sum x_k by AMP. A payload
of P reals is cut into C chunks (real i goes to chunk i mod C) that share one A of m x n, entries
N(0, 1/m): m/n is the compression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.codecs.amp import amp
from otafl.codecs.config import CompressedSensingConfig
from otafl.codecs.rows import Shapes, known_columns, require_once, shapes_of
from otafl.codecs.sparse import Feedback, kept
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import top
from otafl.models.base import unflatten

MEASURED = "measured"
"""The one block of an encoded group."""


@dataclass(frozen=True)
class _Cut:
    """A payload of `reals` as C `chunks` of `length` (the last ones filled up with zeros), each of
    which becomes `measurements`."""

    shapes: Shapes
    reals: int
    chunks: int
    length: int
    measurements: int

    def dealt(self, rows: Tensor) -> Tensor:
        """[n, P] -> [n, C, length]."""
        missing = self.chunks * self.length - self.reals
        return torch.nn.functional.pad(rows, (0, missing)).unflatten(1, (self.length, -1)).mT

    def gathered(self, chunks: Tensor) -> Tensor:
        """[n, C, length] -> [n, P]."""
        return chunks.mT.flatten(1)[:, : self.reals]


class CompressedSensing:
    """Devices that are told apart are decoded one by one, each a recovery of its own."""

    def __init__(self, config: CompressedSensingConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        self._feedback = Feedback(config.error_feedback)
        # one matrix for all trials: rows of a trial then need not be told from those of another
        self._own = Streams([config.matrix_seed], [0], streams.device, streams.dtype)
        self._cuts: list[_Cut | None] = []

    def init(self, payload: Payload) -> Blocks:
        return self._feedback.init(payload)

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        self._cuts = [self._cut(group) if group.route == "uplink" else None for group in payload]
        out = []
        for index, (group, cut) in enumerate(zip(payload, self._cuts, strict=True)):
            if cut is not None:
                require_once(group, "compressed_sensing")
                x, _ = known_columns(group)
                a = self._feedback.before(x, None, group, index, memory)
                sparse = top(a, kept(self.config.keep, cut.reals))
                memory = self._feedback.after(a, sparse, None, group, index, memory)
                measured = (cut.dealt(sparse) @ self._matrix(cut).mT).flatten(1)
                group = replace(group, blocks={MEASURED: measured})
            out.append(group)
        return tuple(out), memory

    def _cut(self, group: Group) -> _Cut:
        if group.mask is not None:
            raise UserError(
                "codec.name: 'compressed_sensing' mixes all coordinates, and the algorithm's "
                "devices know only some of them each; use topk, or a quantiser"
            )
        reals = group.reals
        chunks = -(-reals // self.config.chunk)
        length = -(-reals // chunks)
        measurements = max(1, round(self.config.ratio * length))
        return _Cut(shapes_of(group), reals, chunks, length, measurements)

    def _matrix(self, cut: _Cut) -> Tensor:
        """[m, n], entries N(0, 1/m)."""
        size = (cut.measurements, cut.length)
        return self._own.normal("matrix", 0, size)[0] / cut.measurements**0.5

    def decode(self, received: Received) -> Received:
        each = received.each
        return replace(
            received,
            mean=self._recovered(received.mean),
            each=None if each is None else self._recovered(each),
        )

    def _recovered(self, groups: tuple[Blocks, ...]) -> tuple[Blocks, ...]:
        out = []
        for blocks, cut in zip(groups, self._cuts, strict=True):
            if cut is not None:
                y = blocks[MEASURED].unflatten(1, (cut.chunks, cut.measurements))
                x = amp(y, self._matrix(cut), self.config.iterations, self.config.threshold)
                blocks = unflatten(cut.gathered(x), cut.shapes)
            out.append(blocks)
        return tuple(out)

    def bits(self, group: Group) -> float:
        return 32.0 * group.reals
