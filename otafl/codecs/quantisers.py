"""Codecs that send every coordinate: as it is, or with fewer bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup, get_trial_device
from otafl.core.contracts import Context, Group, Hyper, Received, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_family
from otafl.core.settings import VOTES, declare_stackable


class Identity(Codec):
    """Payload as it is, with 32 bits per coordinate on a digital uplink."""

    is_lossless = True

    class Settings(Codec.Settings):
        name: Literal["identity"] = "identity"

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        return group, memory


class Uniform(Codec):
    """Uniform quantisation of each tensor of a device between its smallest and largest value.

    With beta = min and alpha = max - min, as in FedRLR's baseline 4,

        Q(x) = beta + alpha round((2^b - 1)(x - beta)/alpha)/(2^b - 1).

    The two ends are sent as floats in addition to the tensor.
    """

    class Settings(Codec.Settings):
        name: Literal["uniform"] = "uniform"
        bits: int = Field(8, ge=1, le=24)
        """bits per coordinate"""

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self.word_bits = settings.bits
        self._levels = 2**settings.bits - 1

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Quantise each tensor of the group."""
        blocks = {
            name: (low + step * level).view_as(block)
            for name, block, low, step, level in self._yield_grids(group)
        }
        return replace(group, tensors=blocks), memory

    def count_bits(self, group: Group) -> float:
        return float(self.settings.bits * group.num_coordinates + 64 * len(group.tensors))

    def to_words(self, group: Group) -> Tensors:
        """Return the level of each coordinate above its tensor's smallest value."""
        return {
            name: level.clamp(0, self._levels).to(torch.int64).view_as(block)
            for name, block, _, _, level in self._yield_grids(group)
        }

    def _yield_grids(self, group: Group) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
        """Yield the quantisation grid of each tensor.

        It consists of the tensor's name, the tensor [n, *shape], the smallest value and the step of
        each row, [n, 1], over the coordinates that it has, and the level of each coordinate [n, P],
        0 in a constant row.
        """
        masks = group.mask or {}
        for name, block in group.tensors.items():
            rows = block.flatten(1)
            if name not in masks:
                low, high = rows.aminmax(dim=1, keepdim=True)
            else:
                knows = masks[name].expand_as(block).flatten(1) > 0
                low = rows.where(knows, torch.inf).amin(1, keepdim=True)
                high = rows.where(knows, -torch.inf).amax(1, keepdim=True)
                low, high = low.where(low <= high, 0.0), high.where(low <= high, 0.0)
            step = (high - low) / self._levels
            yield name, block, low, step, ((rows - low) / step.where(step > 0, 1.0)).round()


ROUNDING = declare_family("qsgd", __name__)


class Qsgd(Codec):
    """Unbiased stochastic quantisation of magnitudes, in units of each tensor's norm (QSGD).

    With xi_i = l/s or (l + 1)/s, such that E xi_i = |v_i| / |v|,

        Q(v_i) = |v| sgn(v_i) xi_i.

    The quantiser is unbiased, and E|Q(v) - v|^2 <= min(n/s^2, sqrt(n)/s) |v|^2 with the Euclidean
    norm (Lemma 3.1). Bits are counted with a fixed length: a sign and one of s + 1 = 2^(b - 1)
    levels, and 32 for each norm. The paper's Elias code is shorter if most levels are 0.

    References
    ----------
    Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, "QSGD: Communication-Efficient SGD via Gradient
        Quantization and Encoding", section 3.1.
    """

    class Settings(Codec.Settings):
        name: Literal["qsgd"] = "qsgd"
        bits: int = Field(4, ge=2, le=16)
        """bits per coordinate: a sign, and s = 2^(bits - 1) - 1 levels above 0"""
        norm: Literal["l2", "max"] = "l2"
        """norm of a tensor or bucket, with 32 bits each: the paper's Euclidean norm (l2), or the
        largest magnitude (max), which its experiments use"""
        bucket: int | None = Field(None, ge=1)
        """coordinates that share a norm; a whole tensor if not given"""

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._levels = 2 ** (settings.bits - 1) - 1
        # the largest magnitude is a level itself, so the quantised values determine their grid
        self.word_bits = settings.bits if settings.norm == "max" else None

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Quantise each tensor of the group stochastically."""
        trial_device = get_trial_device(group, context.cohort)
        blocks = {}
        for name, block in group.masked_tensors.items():
            draw = context.streams.draw_device_uniform(
                ROUNDING / index / name, context.round, *trial_device, tuple(block.shape[1:])
            )
            blocks[name] = self._quantise(block, draw)
        return replace(group, tensors=blocks), memory

    def _quantise(self, block: Tensor, draw: Tensor) -> Tensor:
        """Round a tensor [n, *shape] up or down by uniform numbers [n, *shape]."""
        rows = self._split_buckets(block)
        norm = self._compute_norms(rows)
        share = rows.abs() / norm.where(norm > 0, 1.0)  # exactly 1 at the largest magnitude
        level = share.mul_(self._levels).add_(self._split_buckets(draw)).floor_()
        level.clamp_max_(self._levels)
        return _join_buckets(level.mul_(rows.sign()).mul_(norm / self._levels), block)

    def _compute_norms(self, rows: Tensor) -> Tensor:
        """Compute the norms [n, buckets, 1] of rows [n, buckets, size]."""
        if self.settings.norm == "l2":
            norms = torch.linalg.vector_norm(rows, dim=2, keepdim=True, dtype=torch.float64)
            return norms.to(rows.dtype)
        return torch.linalg.vector_norm(rows, torch.inf, dim=2, keepdim=True)

    def _get_bucket_size(self, num_coordinates: int) -> int:
        """Return the size of a bucket in a tensor with some number of coordinates."""
        return min(self.settings.bucket or num_coordinates, num_coordinates)

    def _split_buckets(self, block: Tensor) -> Tensor:
        """Split a tensor [n, *shape] into buckets [n, buckets, size], padded with zeros."""
        rows = block.flatten(1)
        size = self._get_bucket_size(rows.shape[1])
        return torch.nn.functional.pad(rows, (0, -rows.shape[1] % size)).unflatten(1, (-1, size))

    def count_bits(self, group: Group) -> float:
        sizes = [block[:1].flatten(1).shape[1] for block in group.tensors.values()]
        norms = sum(
            -(-num_coordinates // self._get_bucket_size(num_coordinates))
            for num_coordinates in sizes
        )
        return float(self.settings.bits * group.num_coordinates + 32 * norms)

    def to_words(self, group: Group) -> Tensors:
        """Return sign and level as words s + level, from 0 to 2 s."""
        words = {}
        for name, block in group.tensors.items():
            rows = self._split_buckets(block)
            norm = self._compute_norms(rows)
            level = (rows / norm.where(norm > 0, 1.0) * self._levels).round() + self._levels
            words[name] = _join_buckets(level.to(torch.int64), block)
        return words


def _join_buckets(rows: Tensor, like: Tensor) -> Tensor:
    """Join buckets [n, buckets, size] to a tensor of the shape of another one."""
    return rows.flatten(1)[:, : like[0].numel()].reshape(like.shape)


class Obda(Codec):
    """Signs, of which the server takes the majority vote (one-bit aggregation).

    Devices send the signs of their gradients, one on each quadrature of a QPSK symbol
    (`transport.quadrature: true`; otherwise one per symbol). The sign of the received sum is their
    vote, and the server takes a step along it. Zero counts as +1, also in a tie. If signs with sum
    v are received with gain c and noise of variance N / eta, the vote is wrong with probability

        Q(c |v| sqrt(eta / N)).

    Devices send their sign times the step, so that a transport that delivers each update needs no
    vote.

    Study: `studies/published/majority_votes.yaml`.

    References
    ----------
    Zhu, Du, Gunduz, Huang 2021, "One-Bit Over-the-Air Aggregation for Communication-Efficient
        Federated Edge Learning: Design and Convergence Analysis".
    """

    sends_sums = True

    state_attrs: ClassVar = ("_voted",)

    class Settings(Codec.Settings):
        takes_votes: ClassVar[bool] = True

        name: Literal["obda"] = "obda"
        step: float = declare_stackable(0.001, gt=0)
        """size of the server's step along each sign"""

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
        return replace(group, tensors=blocks, weighting="equal"), memory

    def decode(self, received: Received) -> Received:
        """Return the votes instead of the sums; the delivered weight does not change."""
        means = list(received.mean)
        for index in self._voted:
            means[index] = {
                name: _apply_signs(self.hyper["step"], block)
                * (received.delivered_weight(index, name) > 0)
                for name, block in received.mean[index].items()
            }
        return replace(received, mean=tuple(means))

    def count_bits(self, group: Group) -> float:
        return float(group.num_coordinates)


def _apply_signs(step: Tensor, block: Tensor) -> Tensor:
    """Return step [n] with the signs of a tensor [n, *shape], + for zero."""
    size = unsqueeze_like(step, block).expand_as(block)
    return torch.where(block >= 0, size, -size)
