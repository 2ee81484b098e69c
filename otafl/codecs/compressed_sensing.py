"""Project sparse updates at random, sum them over the air, and recover the sum by AMP.

A device adds its memory, keeps the k largest magnitudes, sends A x_k with a Gaussian A that all
share, and the server recovers sum x_k from A sum x_k by approximate message passing (A-DSGD). A
payload of P reals is cut into C chunks (real i goes to chunk i mod C) that share one A of m x n,
entries N(0, 1/m): m/n is the compression.

References
----------
Amiri, Gunduz 2020, "Machine Learning at the Wireless Edge: Distributed Stochastic Gradient Descent
    Over-the-Air".
Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.codecs.base import Codec, Coded
from otafl.codecs.rows import Shapes, known_columns, require_once, shapes_of
from otafl.codecs.sensing import MATRIX, Sensing, decoded, threshold
from otafl.codecs.sparse import Feedback, feedback
from otafl.codecs.subsets import kept
from otafl.core import settings
from otafl.core.contracts import Blocks, Context, Group, Hyper, Payload, Received
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import top
from otafl.models.base import unflatten

MEASURED = "measured"
"""The one block of an encoded group."""


@dataclass(frozen=True)
class _Cut:
    """A payload of `reals` is cut into C `chunks` of `length` (the last ones filled up with zeros),
    each of which becomes `measurements`."""

    shapes: Shapes
    reals: int
    chunks: int
    length: int
    measurements: int

    def dealt(self, rows: Tensor) -> Tensor:
        """Deal rows [n, P] out to chunks [n, C, length]."""
        missing = self.chunks * self.length - self.reals
        return torch.nn.functional.pad(rows, (0, missing)).unflatten(1, (self.length, -1)).mT

    def gathered(self, chunks: Tensor) -> Tensor:
        """Gather chunks [n, C, length] into rows [n, P]."""
        return chunks.mT.flatten(1)[:, : self.reals]


class CompressedSensing(Codec):
    class Settings(settings.Settings):
        name: Literal["compressed_sensing"] = "compressed_sensing"
        keep: float = Field(
            0.05, gt=0, le=1, description="share of the reals that a device keeps, the largest ones"
        )
        ratio: float = Field(0.5, gt=0, le=1, description="measurements a real")
        chunk: int = Field(
            1024,
            ge=8,
            description="reals that are projected together, at most; neighbours are dealt out to "
            "different chunks, so that each is about as sparse as the payload",
        )
        iterations: int = Field(30, ge=1, le=1000, description="of approximate message passing")
        threshold: float = threshold()
        error_feedback: bool = feedback()
        matrix_seed: int = Field(
            0,
            ge=0,
            lt=2**63,
            description="seed of the projection, the same in all trials and rounds",
        )

        @model_validator(mode="after")
        def _measurements_for_what_is_kept(self) -> Self:
            if self.keep > self.ratio:
                raise ValueError(
                    f"keep ({self.keep:g}) is above ratio ({self.ratio:g}): fewer measurements "
                    "than reals that are kept cannot tell them apart; ratio of 3 times keep or "
                    "more would do"
                )
            return self

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._feedback = Feedback(settings.error_feedback)
        self._sensing = Sensing(settings, streams)
        self._cuts: dict[int, _Cut] = {}

    def init(self, payload: Payload) -> Blocks:
        return self._feedback.init(payload)

    def encoded(self, group: Group, index: int, memory: Blocks, context: Context) -> Coded:
        cut = self._cuts[index] = self._cut(group)
        require_once(group, "compressed_sensing")
        x, _ = known_columns(group)
        a = self._feedback.before(x, None, group, index, memory)
        sparse = top(a, kept(self.settings.keep, cut.reals))
        memory = self._feedback.after(a, sparse, None, group, index, memory)
        measured = (cut.dealt(sparse) @ self._matrix(cut).mT).flatten(1)
        return replace(group, blocks={MEASURED: measured}), memory

    def _cut(self, group: Group) -> _Cut:
        """Return how a group is cut. Raises UserError where rows know only some coordinates."""
        if group.mask is not None:
            raise UserError(
                "codec.name: 'compressed_sensing' mixes all coordinates, and the algorithm's "
                "devices know only some of them each; use topk, or a quantiser"
            )
        reals = group.reals
        chunks = -(-reals // self.settings.chunk)
        length = -(-reals // chunks)
        measurements = max(1, round(self.settings.ratio * length))
        return _Cut(shapes_of(group), reals, chunks, length, measurements)

    def _matrix(self, cut: _Cut) -> Tensor:
        return self._sensing.matrix(MATRIX, cut.measurements, cut.length)

    def decode(self, received: Received) -> Received:
        return decoded(received, self._recovered)

    def _recovered(self, index: int, blocks: Blocks) -> Blocks:
        """Return the blocks of a group from its measurements; of the ideal route, as they are."""
        cut = self._cuts.get(index)
        if cut is None:
            return blocks
        y = blocks[MEASURED].unflatten(1, (cut.chunks, cut.measurements))
        return unflatten(cut.gathered(self._sensing.recovered(y, self._matrix(cut))), cut.shapes)
