"""One payload on its way through a slot: signals, channels, the server's results and the cost."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.csi.base import Csi
from otafl.uplink.bounds import LIMITS, Bounds
from otafl.uplink.groups import compute_error_free, make_signal, select_rows
from otafl.uplink.signal import Segments, Signal, compute_squared_norm

TINY = 1e-30


class Delivery:
    """A payload on its way: the signals to send, the server's results, and the cost.

    Groups on the ideal route are delivered from the start, without error and cost.

    Parameters
    ----------
    payload : Payload
        Groups of rows [n, *shape].
    cohort : Cohort
        The N rows that take part.
    channel : ChannelState
        Channel of the slot, h complex [S, K, A, B, F].
    round : int
        Number of the slot.
    limits : TransmitLimits
        Limits of the transmissions besides the power budget.
    budget : LinkBudget
        Power budgets and bandwidth of the S trials.
    apart : bool
        Whether the server gets each device's update, not only the mean.
    turns : int
        Groups of devices that send one after the other, a device in one of them.

    Attributes
    ----------
    uplink : list of Signal
        Signals to send over the channel.
    saved : Tensors
        Coefficients to report, by name.
    """

    def __init__(
        self,
        payload: c.Payload,
        cohort: c.Cohort,
        channel: c.ChannelState,
        round: int,
        limits: c.TransmitLimits,
        budget: c.LinkBudget,
        apart: bool,
        turns: int = 1,
    ) -> None:
        self.payload, self.cohort, self.limits = payload, cohort, limits
        self.channel, self.round, self.turns = channel, round, turns
        self.budget, self._apart = budget, apart
        self.uplink: list[Signal] = []
        self.saved: c.Tensors = {}
        self._given: dict[int, tuple[Any, ...]] = {}
        self._sums: dict[str, Tensor] = {}
        self._delivers: Tensor | None = None
        for index, group in enumerate(payload):
            sent = make_signal(group, cohort, index)
            if group.route == "uplink":
                self.uplink.append(sent)
            else:
                self.give_exact(sent)

    def give(
        self,
        sent: Signal,
        mean: c.Tensors,
        count: Tensor | c.Tensors,
        each: c.Tensors | None = None,
        delivered: Tensor | None = None,
        reached: c.Tensors | None = None,
        *,
        delivered_fn: Callable[[], Tensor],
    ) -> None:
        """Pass the server its result for a group, in the parts of `Received`.

        Parameters
        ----------
        sent : Signal
            Rows of the group.
        mean : Tensors [S, *shape]
            Estimate of the aggregate.
        count : Tensor [S], or Tensors [S, *shape]
            Delivered weight, of the group or of each coordinate.
        each : Tensors [n, *shape], optional
            Updates of the devices, if the server gets them.
        delivered : Tensor, bool [n], optional
            Rows that are delivered; all if None.
        reached : Tensors [S, *shape], optional
            Delivered weight of each coordinate.
        delivered_fn : callable, () -> Tensor
            Returns the delivered coordinates, as in `LinkReport.delivered_mask_fns`.
        """
        self._given[sent.index] = mean, count, each or {}, delivered, reached, delivered_fn

    def give_estimate(
        self,
        sent: Signal,
        estimate: Tensor,
        exact: Tensor,
        count: Tensor | c.Tensors,
        reached: c.Tensors | None = None,
        *,
        delivered_fn: Callable[[], Tensor],
    ) -> None:
        """Pass the server its estimate of a group, and add the aggregation error.

        Parameters
        ----------
        sent : Signal
            Rows of the group.
        estimate, exact : Tensor, float [S, P]
            Estimate, and error-free aggregate.
        count, reached, delivered_fn : as in `give`
        """
        self.give(sent, sent.blocks(estimate), count, reached=reached, delivered_fn=delivered_fn)
        self.add_error(estimate, exact)

    @property
    def power_budget(self) -> Tensor:
        """Power budgets of the devices in the slot, [S, K]."""
        budget, power = self.budget.budget, self.limits.power_share
        return budget if power is None else budget * power

    def give_exact(self, sent: Signal) -> None:
        """Pass the server the error-free aggregate of a group."""
        each = select_rows(sent.group, self.cohort) if self._apart else None
        self.give(sent, *compute_error_free(sent), each, delivered_fn=sent.delivered_mask)

    def note_delivered(self, sent: Signal, weight: Tensor | None = None) -> None:
        """Note the trials to which an uplink group is delivered.

        Parameters
        ----------
        sent : Signal
            Rows of the group.
        weight : Tensor, float [S, ...], optional
            Delivered weight; that of all rows if None.
        """
        weight = sent.cohort.rows_per_trial if weight is None else weight
        some = (weight > 0).view(len(weight), -1).any(1)
        self._delivers = some if self._delivers is None else self._delivers | some

    def add(self, **amounts: Tensor) -> None:
        """Add amounts of a group to those of the groups before.

        Parameters
        ----------
        **amounts : Tensor
            `symbols` [S]: channel uses, one per second and hertz. `bits` [S]: of a digital uplink.
            `side` [S]: side information in channel uses. `energy` [S, K]: of each device, in noise
            units. `sent` [S, K]: channel uses of each device, 1 / bandwidth seconds each. `on_air`
            [S, K] bool: devices that count as participants, which transmitted or, in a digital
            uplink, whose packet arrived. `error`, `target` [S]: squared aggregation error,
            and squared norm of the error-free aggregate.
        """
        for name, value in amounts.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def add_error(self, estimate: Tensor, exact: Tensor) -> None:
        """Add the squared aggregation error of an estimate of the error-free aggregate, [S, P]."""
        error = compute_squared_norm(estimate - exact)
        self.add(error=error, target=compute_squared_norm(exact))

    def scale(self, **factors: float) -> None:
        """Multiply the amounts so far by factors, named as in `add`.

        The product is in double precision, so that whole numbers stay whole.
        """
        for name, factor in factors.items():
            value = self._sums[name]
            self._sums[name] = (value.double() * factor).to(value.dtype)

    def get_received(self) -> c.Received:
        """Return what the server gets of all groups."""
        mean, count, each, delivered, reached, _ = self._columns()
        some = self._delivers
        if some is not None and some.is_cpu and bool(some.all()):  # a GPU would have to wait
            some = None
        return c.Received(
            mean=mean,
            group_weight=count,
            per_device=each if self._apart else None,
            any_delivered=some,
            delivered_mask=None if all(rows is None for rows in delivered) else delivered,
            coordinate_weight=None if all(blocks is None for blocks in reached) else reached,
        )

    def report(self) -> c.LinkReport:
        """Return the cost of the delivery, and the functions of the delivered coordinates."""
        sums, budget = self._sums, self.budget
        zeros = torch.zeros_like(budget.bandwidth_hz)
        none = zeros[:, None].expand(-1, self.cohort.num_devices)
        symbols = sums.get("symbols", zeros)
        energy, sent = sums.get("energy", none), sums.get("sent", none)
        nmse = zeros
        if "error" in sums:  # 0 / 0 is no error
            nmse = sums["error"] / sums["target"].where(sums["target"] > 0, TINY)
        return c.LinkReport(
            symbols=symbols,
            bits=sums.get("bits", zeros),
            side_symbols=sums.get("side", zeros),
            airtime_s=symbols / budget.bandwidth_hz,
            participants=sums.get("on_air", none).sum(1, dtype=zeros.dtype),
            power=energy / sent.clamp_min(1.0),
            energy_j=energy * budget.unit_energy_j[:, None],
            on_air_s=sent / budget.bandwidth_hz[:, None],
            nmse=nmse,
            saved_tensors=self.saved,
            delivered_mask_fns=self._columns()[-1],
        )

    def _columns(self) -> list[tuple[Any, ...]]:
        """Return the arguments of `give`, each over the groups in the payload's order."""
        rows = [self._given[index] for index in sorted(self._given)]
        return list(zip(*rows, strict=True)) or [()] * 6


def mark_delivered(
    cohort: c.Cohort,
    active: Tensor,
    segments: Segments,
    stop: Tensor | None,
    num_coordinates: int,
) -> Tensor:
    """Mark the coordinates that each device has on air.

    Parameters
    ----------
    cohort : Cohort
        The n rows of the group.
    active : Tensor, bool [n, Q], or [n, 1] for all segments
        Rows on air in a segment.
    segments : Segments
        Q segments of the group.
    stop : Tensor, float [n, 1], or None
        Symbols of the group until the crash of each row.
    num_coordinates : int
        Coordinates of a row, P.

    Returns
    -------
    Tensor, bool [S, K, P], or [S, K] if a device has all of its coordinates on air, or none
        The coordinates.
    """
    if stop is None and active.shape[1] == 1:
        return cohort.scatter_to_grid(active[:, 0], False)
    rows = segments.expand(active.expand(-1, len(segments.bounds)), num_coordinates)
    if stop is not None:
        uses = torch.arange(segments.symbols, device=stop.device).repeat(segments.halves)
        rows = rows & (uses[:num_coordinates] < stop)
    return cohort.scatter_to_grid(rows, False)


@dataclass(frozen=True)
class Slot:
    """Channels, budgets and limits that the groups of a payload share.

    The channels include the large-scale gain.

    Parameters
    ----------
    round : int
        Number of the slot.
    h, h_hat : Tensor, complex [S, K, A, C]
        True and estimated channel, C cells flattened over (B, F). Both are one tensor if the
        estimate is exact.
    cell_stops : tuple of int
        Symbol after which each cell ends.
    gain, budget : Tensor, float [S, K]
        Large-scale power gain, and power budget.
    num_uses : int
        Channel uses of the slot.
    bounds : Bounds or None
        Limits of the transmissions besides the budgets; None if there are none.
    group_symbols : list of range
        Symbols of each group.
    uses_per_symbol : int
        Channel uses of a symbol, the unit of `cell_stops`, `group_symbols`, `bounds` and segments.
    """

    round: int
    h: Tensor
    h_hat: Tensor
    cell_stops: tuple[int, ...]
    gain: Tensor
    budget: Tensor
    num_uses: int
    bounds: Bounds | None
    group_symbols: list[range]
    uses_per_symbol: int = 1


def lay_out(
    delivery: Delivery,
    lengths: Sequence[int],
    csi: Csi | None,
    limits: c.TransmitLimits,
    uses_per_symbol: int = 1,
) -> Slot:
    """Lay out the slot of a delivery, and add its pilots to the cost.

    Parameters
    ----------
    delivery : Delivery
        Channel and power budgets.
    lengths : sequence of int
        Symbols of the groups, which are sent one after the other.
    csi : Csi or None
        Channel estimates; None if no device estimates its channel.
    limits : TransmitLimits
        Limits of the transmissions besides the budgets.
    uses_per_symbol : int
        Channel uses of a symbol, which have the fade of the first of them.

    Returns
    -------
    Slot
        The slot.
    """
    channel, each, symbols = delivery.channel, uses_per_symbol, max(1, sum(lengths))
    h = channel.extend_to(each * symbols)
    cells = h.shape[3], h.shape[4], channel.block_symbols, each * symbols
    root = channel.gain.sqrt()[:, :, None, None]
    scaled = h_hat = root * h.flatten(3)
    if csi is not None and not csi.is_perfect:
        estimate = csi.estimate(h, channel.gain, delivery.round)
        h_hat = scaled if estimate is h else root * estimate.flatten(3)
        if csi.num_pilot_symbols:
            block_stops = _compute_cell_stops(*cells)[h.shape[4] - 1 :: h.shape[4]]
            _count_pilots(delivery, csi.num_pilot_symbols, block_stops)
    bounds = None
    if any(getattr(limits, name) is not None for name in LIMITS):
        bounds = Bounds(limits, symbols, each, delivery.turns)
    ends = list(itertools.accumulate(lengths))
    return Slot(
        round=delivery.round,
        h=scaled,
        h_hat=h_hat,
        cell_stops=_compute_cell_stops(*cells, each),
        gain=channel.gain,
        budget=delivery.power_budget,
        num_uses=each * symbols,
        bounds=bounds,
        group_symbols=[range(end - length, end) for end, length in zip(ends, lengths, strict=True)],
        uses_per_symbol=each,
    )


@functools.lru_cache(maxsize=32)
def _compute_cell_stops(
    blocks: int, groups: int, block_symbols: int | None, num_uses: int, uses_per_symbol: int = 1
) -> tuple[int, ...]:
    """Compute the symbol after which each cell (b, f) of the fading ends, [B F].

    The groups of a block are filled one after the other, evenly.
    """
    length = block_symbols or -(-num_uses // blocks)
    return tuple(
        -(-(first + min(length, num_uses - first) * group // groups) // uses_per_symbol)
        for first in range(0, blocks * length, length)
        for group in range(1, groups + 1)
    )


def _count_pilots(delivery: Delivery, num_pilots: int, stops: tuple[int, ...]) -> None:
    """Count the pilots of each device in the coherence blocks of its turn.

    Parameters
    ----------
    delivery : of the slot.
    num_pilots : of a device in a block.
    stops : channel use after which each block ends.
    """
    turns, signals, symbols = delivery.turns, len(delivery.uplink), stops[-1]
    for turn in range(turns):
        first, stop = symbols * turn // turns, symbols * (turn + 1) // turns
        blocks = sum(
            turns == 1 or (before < stop and end > first)
            for before, end in zip([0, *stops], stops, strict=False)
        )
        rows = delivery.uplink[turn * signals // turns].cohort.rows_per_trial
        delivery.add(side=rows * float(num_pilots * blocks))
