"""Measurements by Gaussian matrices, from whose sum over the air AMP recovers the sum.

All trials, devices and rounds share the matrices, so rows of different trials are processed
together. If the server gets each device's update, every update is recovered separately.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.amp import compute_default_threshold, run_amp
from otafl.codecs.base import Codec, EncodedGroup, get_shapes, require_all_coordinates
from otafl.codecs.sparse import (
    FeedbackCodec,
    count_kept,
)
from otafl.core.contracts import Cohort, Context, Group, Hyper, Payload, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Purpose, Streams, declare_family
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import Shapes, flatten, unflatten

MATRIX = declare_family("matrix", __name__)


Iterations = Annotated[
    int, Field(ge=1, le=1000, description="number of steps of approximate message passing")
]
Threshold = Annotated[
    Annotated[float, Field(gt=0, le=10)] | Literal["auto"],
    Field(
        description="soft threshold relative to the noise that a step estimates; auto follows from "
        "the measurements per coordinate: 2.35 at 0.027, 1.95 at 0.1 and 1.4 at 0.5"
    ),
]


class Sensing:
    """Matrices of a codec with the settings `iterations` and `threshold`, from seed 0.

    Parameters
    ----------
    settings : Settings
        Settings of the codec.
    streams : Streams
        Precision and torch device.
    """

    def __init__(self, settings: Any, streams: Streams) -> None:
        self._settings = settings
        self._own = streams.make_common()
        self._matrices: dict[tuple[str, int, int], Tensor] = {}
        self._inverses: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def draw_matrix(self, name: Purpose, rows: int, columns: int) -> Tensor:
        """Return A [m, n] of a stream of `MATRIX`, with entries N(0, 1/m)."""
        key = (name, rows, columns)
        if key not in self._matrices:
            normal = self._own.draw_normal(name, 0, (rows, columns))[0]
            self._matrices[key] = normal / rows**0.5
        return self._matrices[key]

    def recover(self, measured: Tensor, matrix: Tensor) -> Tensor:
        """Recover x [..., n] from measurements A x [..., m]."""
        own: float | str = self._settings.threshold
        threshold = compute_default_threshold(*matrix.shape) if isinstance(own, str) else own
        return run_amp(measured, matrix, self._settings.iterations, threshold)


MEASURED = "measured"
"""Name of the only tensor of an encoded group."""


class CompressedSensing(FeedbackCodec):
    """Random projections of sparse updates, from whose sum over the air AMP recovers the sum.

    A device adds its memory, keeps the k largest magnitudes, and sends A x_k with a Gaussian A that
    all share. The server recovers sum x_k from A sum x_k by approximate message passing (A-DSGD). A
    payload of P coordinates is divided into C chunks (coordinate i is in chunk i mod C) that share
    one m x n matrix A with entries N(0, 1/m). The compression is m/n.

    A linear estimate, A^T (A A^T)^-1 y for measurements y, is the alternative to AMP. It ignores
    that the sum is sparse.

    References
    ----------
    Amiri, Gunduz 2020, "Machine Learning at the Wireless Edge: Distributed Stochastic Gradient
        Descent Over-the-Air".
    Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing".
    """

    state_attrs: ClassVar = ("_shapes",)

    class Settings(FeedbackCodec.Settings):
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
        a, memory = self.add_memory(flatten(group.tensors), None, group, index, memory)
        sparse = self._sparsify(a)
        chunks, matrix = self._count_chunks(group.num_coordinates)
        filled = torch.nn.functional.pad(
            sparse, (0, chunks * matrix.shape[1] - group.num_coordinates)
        )
        measured = (filled.unflatten(1, (-1, chunks)).mT @ matrix.mT).flatten(1)
        return replace(group, tensors={MEASURED: measured}), memory

    def _sparsify(self, a: Tensor) -> Tensor:
        """Set all but the largest magnitudes of the rows a [n, P] to 0."""
        return keep_largest(a, count_kept(self.settings.keep, a.shape[1]))

    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        """Find the projected coordinates, if all measurements are delivered.

        They are computed again from the memory. A part of the measurements contains no coordinate.
        """
        return torch.where(delivered.all(1, keepdim=True), self._sparsify(a), 0.0)

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
            # A^T (A A^T)^-1 [n, m] of a matrix A [m, n], computed once for each shape
            known = self._sensing._inverses.get(tuple(matrix.shape))
            if known is None or known[0] is not matrix:
                known = matrix, torch.linalg.pinv(matrix)
                self._sensing._inverses[tuple(matrix.shape)] = known
            x = measured @ known[1].mT
        else:
            x = self._sensing.recover(measured, matrix)
        return unflatten(x.mT.flatten(1)[:, :num_coordinates], shapes)


@dataclass(frozen=True)
class _Matricisation:
    """Measurement of a tensor [n, *shape] as matrices [n, shape[0], rest].

    They are measured along their first side, or with `last` along the other.
    """

    shape: tuple[int, ...]
    last: bool

    def transpose(self, matrix: Tensor) -> Tensor:
        """Return the matrix with the measured side in the last dimension, or the inverse."""
        return matrix if self.last else matrix.mT


class MatrixSensing(Codec):
    """Gaussian measurements of one side of each weight matrix, whose columns AMP recovers.

    A device sends A W with a Gaussian A, entries N(0, 1/m), one for each layer that all share. The
    server recovers every column of the mean of W from its m measurements by approximate message
    passing (FedRLR, baselines 2 and 3). The measured side is one that the matrices have in common:
    in the model 784-256-256-10 the 256 of all three, which leaves m (784 + 256 + 10) coordinates.

    References
    ----------
    Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing".
    Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
        Aggregation", baselines 2 and 3.
    """

    state_attrs: ClassVar = ("_side", "_cuts")

    class Settings(Codec.Settings):
        example: ClassVar[Mapping[str, Any]] = {"algorithm.name": "prox_sgd"}
        small: ClassVar[Mapping[str, Any]] = {"rows": 2, "iterations": 10}

        name: Literal["matrix_sensing"] = "matrix_sensing"
        rows: int = Field(8, ge=1)
        """measurements of each column; FedRLR uses 8, and 200 in its Table II"""
        side: int | None = Field(None, ge=2)
        """length of the measured side, of every matrix that has it (the first, if both have); other
        matrices are sent as they are. If not given, the most frequent length, and of several the
        largest"""
        iterations: Iterations = 50
        threshold: Threshold = 1.5

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._sensing = Sensing(settings, streams)
        self._side = 0
        self._cuts: dict[tuple[int, str], tuple[tuple[int, ...], bool]] = {}

    def encode(
        self, payload: Payload, memory: Tensors, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Tensors]:
        # the measured side: the setting, or the length that most matrices have
        groups = [group for group in payload if group.route == "uplink"]
        require_all_coordinates(groups, "matrix_sensing", "mixes coordinates")
        every = [_get_sides(block) for group in groups for block in group.tensors.values()]
        if not any(every):
            raise UserError(
                "codec.name: 'matrix_sensing' measures matrices, and the algorithm sends none; "
                "use fedavg with sends: model, prox_sgd or magnitude_pruning, or another codec"
            )
        count = Counter(length for sides in every for length in sides)
        side = self.settings.side
        if side is None:
            side = max(count, key=lambda length: (count[length], length))
        if side not in count:
            known = ", ".join(str(length) for length in sorted(count))
            raise UserError(f"codec.side: no matrix has a side of {side}; use one of {known}")
        if self.settings.rows >= side:
            raise UserError(
                f"codec.rows: {self.settings.rows} measurements of {side} coordinates compress "
                f"nothing; use fewer than {side}"
            )
        self._side = side
        return super().encode(payload, memory, cohort, round, streams)

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the measurements A W of the matrices with the measured side."""
        blocks = dict(group.tensors)
        for name, block in group.tensors.items():
            if self._side in _get_sides(block):
                self._cuts[index, name] = tuple(block.shape[1:]), block.shape[1] != self._side
                cut = _Matricisation(*self._cuts[index, name])
                blocks[name] = cut.transpose(
                    cut.transpose(block.flatten(2)) @ self._get_matrix(name).mT
                )
        return replace(group, tensors=blocks), memory

    def _get_matrix(self, name: str) -> Tensor:
        return self._sensing.draw_matrix(MATRIX / name, self.settings.rows, self._side)

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        whole = dict(tensors)
        for name, block in tensors.items():
            if (index, name) in self._cuts:
                cut = _Matricisation(*self._cuts[index, name])
                columns = self._sensing.recover(cut.transpose(block), self._get_matrix(name))
                whole[name] = cut.transpose(columns).reshape(-1, *cut.shape)
        return whole


def _get_sides(block: Tensor) -> set[int]:
    """Return the lengths of the two sides of matrices [n, rows, ...]; none for vectors."""
    return {block.shape[1], math.prod(block.shape[2:])} if block.dim() >= 3 else set()
