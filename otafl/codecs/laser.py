r"""Low-rank factors of each layer's update, with a power split over what is sent (LASER).

The server keeps a matrix U [m, r] and a matrix V [n, r] for each layer, and devices know them. In
an even round device k sends the right factor of its update M_k [m, n], and in an odd round the left
one. The other factor is common, with orthonormal columns, so that the factors superpose:

.. math::

    F_k = M_k^T U, \quad \hat M = U \left( \sum_k w_k F_k \right)^T                              (1)

    F_k = M_k V, \quad \hat M = \left( \sum_k w_k F_k \right) V^T                                (2)

The received sum, with its noise and after orthonormalisation, is the common factor of the next
round (a warm-started power iteration of PowerSGD with one product a round). Matrices that this does
not shorten, and vectors, are sent as they are. Devices keep M_k - U F_k^T and add it to the next
update (error feedback).

Every sent tensor b with d_b coordinates and norm |F_b| is multiplied by a gain g_b that server and
devices know. At power P and noise variance v per coordinate, the squared error of all tensors is

.. math::

    \sum_b \frac{v d_b}{g_b^2}, \quad \sum_b g_b^2 | F_b |^2 = P                                 (3)

A share g_b^2 |F_b|^2 / P proportional to |F_b| is LASER's split. The least error (v / P) (sum_b
sqrt(d_b) |F_b|)^2 has a share proportional to sqrt(d_b) |F_b|. The norms are those that the server
received last in the same direction; before that, all gains are 1.

References
----------
Makkuva, Bondaschi, Vogels, Jaggi, Kim, Gastpar 2024, "LASER: Linear Compression in Wireless
    Distributed Optimization", and the program that the authors published with it.
Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
    Optimization", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import (
    EncodedGroup,
    find_late_problems,
    find_mean_problems,
    find_vote_problems,
    get_shapes,
    get_trial_device,
)
from otafl.codecs.sparse import (
    FeedbackCodec,
)
from otafl.core.contracts import (
    Broadcast,
    Cohort,
    Context,
    Group,
    Hyper,
    Payload,
    Received,
    Tensors,
    unsqueeze_like,
)
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_family
from otafl.models.base import Shapes, flatten, unflatten

FACTOR = declare_family("laser_factor", __name__)

PowerSplit = Literal["none", "norm", "optimal"]


@dataclass(frozen=True)
class _Sent:
    """Parts of a group as they are sent in the current round.

    Parameters
    ----------
    shapes : dict of str to tuple of int
        Shapes of the group's tensors.
    parts : dict of str to tuple of int
        Shapes of its parts, in the same order of coordinates: the layers of a model.
    bases : dict of str to Tensor [S, d, r]
        Common orthonormal factor of each matrix that is factorised.
    gains : dict of str to Tensor [S]
        Gain g of each part.
    is_left : bool
        Whether the common factor is the left one, U.
    """

    shapes: Shapes
    parts: Shapes
    bases: Tensors
    gains: Tensors
    is_left: bool

    def compress(self, a: Tensor, trial: Tensor) -> Tensors:
        """Return what rows a [n, P] of trials [n] send, without the gains, eqs. (1) and (2)."""
        sent = unflatten(a, self.parts)
        for name, basis in self.bases.items():
            matrix = sent[name].flatten(2)
            sent[name] = (matrix.mT if self.is_left else matrix) @ basis[trial]
        return sent

    def expand(self, sent: Tensors, trial: Tensor | None = None) -> Tensor:
        """Return the coordinates [n, P] of what was sent; rows are trials if not given."""
        whole = {}
        for name, shape in self.parts.items():
            block = sent[name]
            if name in self.bases:
                basis = self.bases[name] if trial is None else self.bases[name][trial]
                block = basis @ block.mT if self.is_left else block @ basis.mT
            whole[name] = block.reshape(-1, *shape)
        return flatten(whole)


class Laser(FeedbackCodec):
    """Low-rank factors of the layers, sent in turn, with a power split over the layers."""

    state_attrs: ClassVar = ("_factors", "_norms")
    sends_sums = True

    class Settings(FeedbackCodec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"rank": 1}

        name: Literal["laser"] = "laser"
        rank: int = Field(4, ge=1)
        """columns r of the factors"""
        power_split: PowerSplit = "norm"
        """shares of the power of the layers: none, as one payload with one scalar; norm,
        proportional to the received norm (LASER); optimal, of least squared error"""

        def check(self, scenario: Any) -> Iterator[Problem]:
            yield from find_late_problems(scenario, self.name, "factor")
            yield from find_vote_problems(scenario, self.name)
            yield from find_mean_problems(scenario, self.name)
            blockwise = getattr(scenario.transport.values, "normalise", "") == "block"
            if blockwise and self.power_split != "none":
                text = (
                    f"'{self.power_split}' has no effect with transport.normalise: block, which "
                    "gives every tensor the same power per symbol; use power_split: none"
                )
                yield make_problem(text, "codec.power_split", "transport.normalise")

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._own = streams.make_common()
        self._factors: dict[tuple[int, str, bool], Tensor] = {}
        self._norms: dict[tuple[int, str, bool], Tensor] = {}
        self._sent: dict[int, _Sent] = {}

    def extend_broadcast(self, broadcast: Broadcast, round: int) -> Broadcast:
        """Add the common factors of a round that the server has received, and the gains.

        Factors before that are drawn from a seed that devices know.
        """
        is_left = round % 2 == 0
        count = sum(
            math.prod(basis.shape[1:])
            for (index, name, side), basis in self._factors.items()
            if side == is_left and (index, name, not side) in self._norms
        )
        if self.settings.power_split != "none":
            count += sum(side == is_left for _, _, side in self._norms)
        return replace(broadcast, side_coordinates=count)

    def encode(
        self, payload: Payload, memory: Tensors, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Tensors]:
        coded = super().encode(payload, memory, cohort, round, streams)
        if not any(sent.bases for sent in self._sent.values()):
            raise UserError(
                "codec.name: 'laser' factorises matrices, and the algorithm sends none that rank "
                f"{self.settings.rank} shortens; use a smaller codec.rank, or another codec"
            )
        return coded

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return one factor of each matrix, and the other tensors, times their gains."""
        if group.mask is not None:
            raise UserError(
                "codec.name: 'laser' factorises whole matrices, and the algorithm's devices have "
                "only some of their coordinates; use topk, or a quantiser"
            )
        sent = self._plan(group, index, context)
        self._sent[index] = sent
        trial = get_trial_device(group, context.cohort)[0]
        a, memory = self.add_memory(flatten(group.tensors), None, group, index, memory)
        tensors = {
            name: block * unsqueeze_like(sent.gains[name][trial], block)
            for name, block in sent.compress(a, trial).items()
        }
        return replace(group, tensors=tensors), memory

    def _plan(self, group: Group, index: int, context: Context) -> _Sent:
        """Return the parts of a group, their common factors and their gains in a round."""
        # list the parts of a group: its tensors, or the layers in a tensor of a whole model
        flat = sum(math.prod(shape) for shape in self.model_shapes.values())
        parts: Shapes = {}
        for name, shape in get_shapes(group).items():
            if shape == (flat,):
                parts |= {f"{name}.{part}": own for part, own in self.model_shapes.items()}
            else:
                parts[name] = shape
        parts = parts
        is_left = int(context.round) % 2 == 0
        trials, bases = context.cohort.num_trials, {}
        for name, shape in parts.items():
            rank = _choose_rank(shape, self.settings.rank)
            if rank:
                basis = self._get_factor(index, name, shape, rank, is_left)
                bases[name] = basis.expand(trials, -1, -1)
        gains = self._compute_gains(index, parts, bases, is_left, context)
        return _Sent(get_shapes(group), parts, bases, gains, is_left)

    def _get_factor(
        self, index: int, name: str, shape: tuple[int, ...], rank: int, is_left: bool
    ) -> Tensor:
        """Return the common factor [S or 1, d, r] of a matrix, at the start a random one."""
        key = index, name, is_left
        if key not in self._factors:
            length = shape[0] if is_left else math.prod(shape[1:])
            stream = FACTOR / index / name / ("left" if is_left else "right")
            start = self._own.draw_normal(stream, 0, (length, rank))
            self._factors[key] = orthonormalise(start)
        return self._factors[key]

    def _compute_gains(
        self, index: int, parts: Shapes, bases: Tensors, is_left: bool, context: Context
    ) -> Tensors:
        """Return the gain [S] of each part in a round, 1 until the server has received it."""
        known = [self._norms.get((index, name, is_left)) for name in parts]
        ones = context.cohort.weight.new_ones(context.cohort.num_trials)
        if self.settings.power_split == "none" or any(norm is None for norm in known):
            return dict.fromkeys(parts, ones)
        sizes = []
        for name, shape in parts.items():
            length = math.prod(shape)
            if name in bases:
                rank = bases[name].shape[2]
                length = rank * (math.prod(shape[1:]) if is_left else shape[0])
            sizes.append(float(length))
        norms = torch.stack([norm for norm in known if norm is not None])
        gains = compute_gains(norms, norms.new_tensor(sizes), self.settings.power_split)
        return dict(zip(parts, gains, strict=True))

    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        """Find what the factors contain, where all of them are delivered.

        It is computed again from the memory. A part of the factors contains no coordinate.
        """
        sent, trial = self._sent[index], get_trial_device(group, context.cohort)[0]
        low_rank = sent.expand(sent.compress(a, trial), trial)
        return torch.where(delivered.all(1, keepdim=True), low_rank, 0.0)

    def decode(self, received: Received) -> Received:
        """Decode the mean, and keep the factors that it contains for the next round.

        Updates of single devices are not decoded.
        """
        decoded = super().decode(replace(received, per_device=None))
        for index, tensors in enumerate(received.mean):
            if index in self._sent:
                # store factors and norms of the mean, except in trials that received nothing
                sent = self._sent[index]
                for name, block in _remove_gains(sent, tensors).items():
                    norm = torch.linalg.vector_norm(block.flatten(1), dim=1)
                    usable = (norm > 0) & norm.isfinite()
                    key = index, name, sent.is_left
                    old = self._norms.get(key)
                    self._norms[key] = norm.where(usable, 1.0 if old is None else old)
                    if name in sent.bases:
                        other, clean = not sent.is_left, block.where(usable[:, None, None], 0.0)
                        rank = clean.shape[2]
                        kept = self._get_factor(index, name, sent.parts[name], rank, other)
                        fresh = orthonormalise(clean)
                        self._factors[index, name, other] = fresh.where(usable[:, None, None], kept)
        return decoded

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        if index not in self._sent:
            return tensors
        sent = self._sent[index]
        return unflatten(sent.expand(_remove_gains(sent, tensors)), sent.shapes)


def orthonormalise(columns: Tensor) -> Tensor:
    """Return orthonormal columns [S, d, r] with the span of others."""
    return torch.linalg.qr(columns).Q


def compute_gains(norms: Tensor, lengths: Tensor, split: PowerSplit) -> Tensor:
    r"""Compute the gains of tensors that share a power budget.

    Parameters
    ----------
    norms : Tensor, float [B, S]
        Norms |F_b| of the tensors; where one is 0, all gains are 1.
    lengths : Tensor, float [B]
        Coordinates d_b of the tensors.
    split : {"none", "norm", "optimal"}
        Rule of the shares.

    Returns
    -------
    Tensor, float [B, S]
        Gains g_b, which do not change the energy of all tensors together.

    Notes
    -----
    With shares s_b proportional to |F_b|^2, |F_b| or sqrt(d_b) |F_b|, eq. (3):

    .. math::

        g_b^2 = s_b \sum_c | F_c |^2 / | F_b |^2, \quad \sum_b s_b = 1
    """
    energy = norms.square()
    part = {"none": energy, "norm": norms, "optimal": lengths.sqrt()[:, None] * norms}[split]
    share = part / part.sum(0)
    gains = (share * energy.sum(0) / energy).sqrt()
    return gains.where(gains.isfinite().all(0) & (gains > 0).all(0), 1.0)


def _choose_rank(shape: tuple[int, ...], rank: int) -> int:
    """Return the rank of a matrix's factors; 0 for a tensor that factors do not shorten."""
    if len(shape) < 2:
        return 0
    rows, columns = shape[0], math.prod(shape[1:])
    least = min(rank, rows, columns)
    return least if least * (rows + columns) < rows * columns else 0


def _remove_gains(sent: _Sent, tensors: Tensors) -> Tensors:
    """Return received tensors [S, ...] without the gains of their parts."""
    return {
        name: block / unsqueeze_like(sent.gains[name], block) for name, block in tensors.items()
    }
