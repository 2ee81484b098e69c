"""Gaussian measurements of one side of each weight matrix, whose columns AMP recovers.

A device sends A W with a Gaussian A, entries N(0, 1/m), one for each layer that all share. The
server recovers every column of the mean of W from its m measurements by approximate message passing
(FedRLR, baselines 2 and 3). The measured side is one that the matrices have in common: in the model
784-256-256-10 the 256 of all three, which leaves m (784 + 256 + 10) coordinates.

References
----------
Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing".
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", baselines 2 and 3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup, require_all_coordinates
from otafl.codecs.sensing import MATRIX, Iterations, MatrixSeed, Sensing, Threshold
from otafl.core.contracts import Cohort, Context, Group, Hyper, Payload, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams


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
    """Compressed sensing of weight matrices."""

    state_attrs: ClassVar = ("_side", "_cuts")
    has_single_row = False

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
        matrix_seed: MatrixSeed = 0

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._sensing = Sensing(settings, streams)
        self._side = 0
        self._cuts: dict[tuple[int, str], tuple[tuple[int, ...], bool]] = {}

    def encode(
        self, payload: Payload, memory: Tensors, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Tensors]:
        self._side = self._choose_common_side(
            [group for group in payload if group.route == "uplink"]
        )
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

    def _choose_common_side(self, groups: list[Group]) -> int:
        """Return the measured side: the setting, or the length that most matrices have."""
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
        return side

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
