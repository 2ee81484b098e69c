"""Set up one step of the uplink by hand: two devices of weights 1/4 and 3/4, which send two
numbers each over channels 1 and 2j.

K w_k x_k is (1, 2) and (3, -3), so energies are 5 and 18 and mean symbol powers 2.5 and 9. Budgets
10 and 36 let channel inversion reach with amplitudes 2 and 4, so it takes eta = 4, p = (2, -j).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import (
    NO_LIMITS,
    ChannelState,
    ChannelStatistics,
    Cohort,
    Group,
    LinkBudget,
    TransmitLimits,
)
from otafl.core.rng import Streams
from otafl.power.base import PowerPolicy
from otafl.power.inversion import ChannelInversion
from otafl.receivers.base import Receiver, Scalar
from otafl.uplink.delivery import Delivery, Slot, lay_out
from otafl.uplink.groups import centre
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import Segments, Signal, cut
from otafl.uplink.transmission import Alignment, Transmission, transmit

F64 = torch.float64
X = torch.tensor([[2.0, 4.0], [2.0, -2.0]], dtype=F64)
WEIGHTS = torch.tensor([0.25, 0.75], dtype=F64)
H = torch.tensor([1.0, 2.0j], dtype=torch.complex128)
STREAMS = Streams([1], [0], dtype=F64)


class Known:
    """Channel knowledge without error, for two pilots a block."""

    is_perfect = False
    num_pilot_symbols = 2

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h


def close(found: Tensor, expected: Any) -> None:
    """Compare a tensor with numbers, to rounding."""
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype))


def two() -> Cohort:
    """Make the cohort of the two devices."""
    pair = torch.arange(2)
    return Cohort.create(torch.zeros_like(pair), pair, WEIGHTS, (2,), 2)


def delivery(
    *groups: Group,
    h: Tensor = H,
    limits: TransmitLimits = NO_LIMITS,
    block_symbols: int | None = None,
    apart: bool = False,
) -> Delivery:
    """Make the delivery of groups, of X if none are given, over h [K] or [K, A, B, F]."""
    cells = (h if h.dim() == 4 else h[:, None, None, None])[None]
    ones = torch.ones(1, 2, dtype=F64)
    budget = LinkBudget(
        budget=torch.tensor([[10.0, 36.0]], dtype=F64),
        gain=ones,
        unit_power_w=ones[:, 0],
        bandwidth_hz=2.0 * ones[:, 0],
        is_physical=ones[:, 0] > 0,
    )
    channel = ChannelState(cells[..., :1, :], ones, block_symbols, lambda b: cells[..., :b, :])
    return Delivery(groups or (Group({"a": X}),), two(), channel, 0, limits, budget, apart)


def slot_of(made: Delivery, lengths: Sequence[int] = (2,), uses_per_symbol: int = 1) -> Slot:
    """Lay out the slot of a delivery."""
    csi: Any = Known()
    return lay_out(made, lengths, csi, made.limits, uses_per_symbol)


def prepare(
    made: Delivery, quadrature: bool = False, centred: bool = False, blockwise: bool = False
) -> tuple[Slot, Signal, Segments, Tensor | None]:
    """Lay out the slot, and cut and centre the first group."""
    sent, means = made.uplink[0], None
    symbols = -(-sent.num_coordinates // (2 if quadrature else 1))
    slot = slot_of(made, [symbols])
    segments = cut(sent, slot.uses[0], slot.cell_stops, blockwise, quadrature)
    if centred:
        sent, means = centre(sent, segments)
    return slot, sent, segments, means


def alignment(
    policy: PowerPolicy | None = None, receiver: Receiver | None = None, **impairments: Any
) -> Alignment:
    """Make the parts that align signals: channel inversion and one antenna, if not given."""
    csi: Any = Known()
    statistics: Any = ChannelStatistics
    made = Impairments([Impairments.Settings(**impairments)], None, STREAMS)
    chosen = policy or ChannelInversion()
    return Alignment(csi, receiver or Scalar(), chosen, statistics, {}, made)


def on_air_of(
    made: Delivery, aligned: Alignment | None = None, state: Any = None, **how: bool
) -> tuple[Delivery, Transmission]:
    """Put the first group of a delivery on air."""
    slot, sent, segments, means = prepare(made, **how)
    return made, transmit(slot, sent, segments, aligned or alignment(), state, means=means)[1]
