"""Random projections of sparse updates, from whose sum over the air AMP recovers the sum.

A device adds its memory, keeps the k largest magnitudes, and sends A x_k with a Gaussian A that all
share. The server recovers sum x_k from A sum x_k by approximate message passing (A-DSGD). A payload
of P coordinates is divided into C chunks (coordinate i is in chunk i mod C) that share one m x n
matrix A with entries N(0, 1/m). The compression is m/n.

A linear estimate, A^T (A A^T)^-1 y for measurements y, is the alternative to AMP. It ignores that
the sum is sparse.

References
----------
Amiri, Gunduz 2020, "Machine Learning at the Wireless Edge: Distributed Stochastic Gradient Descent
    Over-the-Air".
Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup, get_shapes, require_all_coordinates
from otafl.codecs.sensing import MATRIX, Iterations, MatrixSeed, Sensing, Threshold
from otafl.codecs.sparse import (
    FEEDBACK,
    ErrorFeedbackSettings,
    Feedback,
    add_memory,
    count_kept,
    gather_memory,
    store_memory,
    subtract_delivered,
)
from otafl.core.contracts import Context, DeliveredMasks, Group, Hyper, Payload, Tensors
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import Shapes, flatten, unflatten

MEASURED = "measured"
"""Name of the only tensor of an encoded group."""


class CompressedSensing(ErrorFeedbackSettings):
    """Compressed sensing of sparse updates."""

    state_attrs: ClassVar = ("_shapes",)

    class Settings(Codec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"iterations": 10}

        name: Literal["compressed_sensing"] = "compressed_sensing"
        keep: float = Field(0.05, gt=0, le=1)
        """fraction of the coordinates that a device keeps, the largest ones"""
        ratio: float = Field(0.5, gt=0, le=1)
        """measurements per coordinate"""
        chunk: int = Field(1024, ge=8)
        """largest number of coordinates that are projected together; neighbours are in different
        chunks, so that each is about as sparse as the payload"""
        iterations: Iterations = 30
        threshold: Threshold = "auto"
        estimate: Literal["amp", "linear"] = "amp"
        """estimate of the sum: amp, by approximate message passing; linear, the vector of least
        norm with these measurements, as in the program of Makkuva et al. 2024"""
        error_feedback: Feedback = True
        matrix_seed: MatrixSeed = 0

        @property
        def assumes_increments(self) -> str:
            return FEEDBACK if self.error_feedback else ""

        def find_conflicts(self) -> Iterator[str]:
            if self.keep > self.ratio:
                yield (
                    f"keep ({self.keep:g}) is above ratio ({self.ratio:g}), so there are fewer "
                    "measurements than kept coordinates; use a ratio of at least 3 times keep"
                )

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._sensing = Sensing(settings, streams)
        self._shapes: dict[int, Shapes] = {}

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the measurements A x of the sparse rows, [n, C m]."""
        require_all_coordinates((group,), "compressed_sensing", "mixes all coordinates")
        self._shapes[index] = get_shapes(group)
        a = add_memory(flatten(group.tensors), None, group, index, memory)
        sparse = self._sparsify(a)
        memory = store_memory(a, None, group, index, memory)
        chunks, matrix = self._count_chunks(group.num_coordinates)
        filled = torch.nn.functional.pad(
            sparse, (0, chunks * matrix.shape[1] - group.num_coordinates)
        )
        measured = (filled.unflatten(1, (-1, chunks)).mT @ matrix.mT).flatten(1)
        return replace(group, tensors={MEASURED: measured}), memory

    def _sparsify(self, a: Tensor) -> Tensor:
        """Set all but the largest magnitudes of the rows a [n, P] to 0."""
        return keep_largest(a, count_kept(self.settings.keep, a.shape[1]))

    def on_ack(
        self, memory: Tensors, payload: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        """Remove what was projected from the memory, where all measurements are delivered.

        It is computed again from the memory. A part of the measurements contains no coordinate.
        """
        for index, (group, delivered) in enumerate(zip(payload, delivered_masks, strict=True)):
            if group.route == "uplink":
                sparse = self._sparsify(gather_memory(group, index, memory))
                whole = delivered.all(1, keepdim=True)
                memory = subtract_delivered(sparse, whole, group, index, memory)
        return memory

    def _count_chunks(self, num_coordinates: int) -> tuple[int, Tensor]:
        """Return the number of chunks of a payload, and the matrix [m, n] of each.

        The last chunks are padded with zeros.
        """
        chunks = -(-num_coordinates // self.settings.chunk)
        length = -(-num_coordinates // chunks)
        measurements = max(1, round(self.settings.ratio * length))
        return chunks, self._sensing.draw_matrix(MATRIX, measurements, length)

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        shapes = self._shapes.get(index)
        if shapes is None:
            return tensors
        num_coordinates = sum(math.prod(shape) for shape in shapes.values())
        chunks, matrix = self._count_chunks(num_coordinates)
        measured = tensors[MEASURED].unflatten(1, (chunks, -1))
        if self.settings.estimate == "linear":
            x = measured @ self._sensing.get_pseudo_inverse(matrix).mT
        else:
            x = self._sensing.recover(measured, matrix)
        return unflatten(x.mT.flatten(1)[:, :num_coordinates], shapes)
