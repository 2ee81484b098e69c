"""Weight matrices measured along one of their sides, and recovered column by column.

Xue and Lau, FedRLR, baselines 2 and 3: a device sends A W with a Gaussian A, entries N(0, 1/m), one
for each layer that all share, and the server recovers every column of the mean of W from its m
measurements by approximate message passing (Donoho, Maleki, Montanari 2009, "Message-passing
algorithms for compressed sensing"). Measured is the side that the matrices have in common: of
784-256-256-10 the 256 of all three, which leaves m (784 + 256 + 10) reals.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from torch import Tensor

from otafl.codecs.amp import amp
from otafl.codecs.config import MatrixSensingConfig
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.errors import UserError
from otafl.core.rng import Streams


@dataclass(frozen=True)
class _Cut:
    """How a block [n, *shape] is measured: as matrices [n, shape[0], rest], along their first side,
    or with `last` along the other."""

    shape: tuple[int, ...]
    last: bool

    def columns(self, block: Tensor) -> Tensor:
        """[n, *shape] -> [n, columns, side], what is measured in the last dimension."""
        matrix = block.flatten(2)
        return matrix if self.last else matrix.mT

    def block(self, columns: Tensor) -> Tensor:
        """The other way."""
        matrix = columns if self.last else columns.mT
        return matrix.reshape(-1, *self.shape)

    def sent(self, measured: Tensor) -> Tensor:
        """Measurements [n, columns, m] on the side where they were taken."""
        return measured if self.last else measured.mT


class MatrixSensing:
    """Devices that are told apart are decoded one by one, each a recovery of its own."""

    def __init__(self, config: MatrixSensingConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        # one matrix for all trials, as for all devices
        self._own = Streams([config.matrix_seed], [0], streams.device, streams.dtype)
        self._matrices: Blocks = {}
        self._cuts: list[dict[str, _Cut]] = []

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        uplink = [group for group in payload if group.route == "uplink"]
        side = self._side(uplink)
        self._cuts, out = [], []
        for group in payload:
            cuts = _cuts(group, side) if group.route == "uplink" else {}
            self._cuts.append(cuts)
            blocks = dict(group.blocks)
            for name, cut in cuts.items():
                blocks[name] = cut.sent(cut.columns(blocks[name]) @ self._matrix(name, side).mT)
            out.append(replace(group, blocks=blocks))
        return tuple(out), memory

    def _side(self, groups: list[Group]) -> int:
        """The side that is measured: the one named, or the one that most matrices have."""
        if any(group.mask is not None for group in groups):
            raise UserError(
                "codec.name: 'matrix_sensing' mixes coordinates, and the algorithm's devices know "
                "only some of them each; use topk, or a quantiser"
            )
        sides = [
            {block.shape[1], math.prod(block.shape[2:])}
            for group in groups
            for block in group.blocks.values()
            if block.dim() >= 3
        ]
        if not sides:
            raise UserError(
                "codec.name: 'matrix_sensing' measures matrices, and the algorithm sends none; "
                "use fedavg with sends: model, prox_sgd or magnitude_pruning, or another codec"
            )
        count = Counter(length for own in sides for length in own)
        side = self.config.side
        if side is None:
            side = max(count, key=lambda length: (count[length], length))
        if side not in count:
            known = ", ".join(str(length) for length in sorted(count))
            raise UserError(f"codec.side: no matrix has a side of {side}; one of {known} would do")
        if self.config.rows >= side:
            raise UserError(
                f"codec.rows: {self.config.rows} measurements of {side} reals compress nothing; "
                f"fewer than {side} would do"
            )
        return side

    def _matrix(self, name: str, side: int) -> Tensor:
        """A [m, side] of a block, entries N(0, 1/m)."""
        if name not in self._matrices:
            size = (self.config.rows, side)
            normal = self._own.normal(f"matrix/{name}", 0, size)[0]
            self._matrices[name] = normal / self.config.rows**0.5
        return self._matrices[name]

    def decode(self, received: Received) -> Received:
        each = received.each
        return replace(
            received,
            mean=self._recovered(received.mean),
            each=None if each is None else self._recovered(each),
        )

    def _recovered(self, groups: tuple[Blocks, ...]) -> tuple[Blocks, ...]:
        out = []
        for blocks, cuts in zip(groups, self._cuts, strict=True):
            whole = dict(blocks)
            for name, cut in cuts.items():
                measured = blocks[name] if cut.last else blocks[name].mT
                matrix, config = self._matrices[name], self.config
                whole[name] = cut.block(amp(measured, matrix, config.iterations, config.threshold))
            out.append(whole)
        return tuple(out)

    def bits(self, group: Group) -> float:
        return 32.0 * group.reals


def _cuts(group: Group, side: int) -> dict[str, _Cut]:
    """Of the group's blocks that have this side; the others travel as they are."""
    cuts = {}
    for name, block in group.blocks.items():
        if block.dim() >= 3 and side in (block.shape[1], math.prod(block.shape[2:])):
            cuts[name] = _Cut(tuple(block.shape[1:]), last=block.shape[1] != side)
    return cuts
