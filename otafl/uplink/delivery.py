"""Follow a payload through a slot: what is sent over which channel, and what the server gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.uplink.signal import (
    Signal,
    compute_error_free,
    compute_squared_norm,
    make_signal,
    select_rows,
)

TINY = 1e-30


class Delivery:
    """A payload on its way: the signals to send, what the server gets of them, and their cost.

    uplink: signals that are sent over the channel. Groups on the ideal route are delivered from the
    start, free of error and of charge. tally: of the cost.

    Parameters
    ----------
    payload, cohort, channel, round, limits : as in `otafl.uplink.base.deliver`.
    budget : powers and bandwidth of S trials.
    apart : whether the server tells devices apart, and so gets each update too.
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
    ) -> None:
        self.payload, self.cohort, self.limits = payload, cohort, limits
        self.channel, self.round = channel, round
        self.budget, self.tally = budget, Tally(budget, cohort.num_devices)
        self.uplink: list[Signal] = []
        self._apart, self._every_trial = apart, False
        self._given: dict[int, tuple[Any, ...]] = {}
        self._alive: Tensor | None = None
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
        """Give the server what it gets of a group, as in `Received`; heard: as in `LinkReport`."""
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
        """Give the server its estimate [S, P] of a group, and add its error about the error-free
        aggregate [S, P]; the others as in `give`."""
        self.give(sent, sent.blocks(estimate), count, reached=reached, delivered_fn=delivered_fn)
        self.tally.error(compute_squared_norm(estimate - exact), compute_squared_norm(exact))

    @property
    def power_budget(self) -> Tensor:
        """Return the devices' power budgets in the slot, [S, K]."""
        budget, power = self.budget.budget, self.limits.power_share
        return budget if power is None else budget * power

    def give_exact(self, sent: Signal) -> None:
        """Give the server a group free of error."""
        each = select_rows(sent.group, self.cohort) if self._apart else None
        self.give(sent, *compute_error_free(sent), each, delivered_fn=sent.delivered_mask)

    def note_delivered(self, sent: Signal, weight: Tensor | None = None) -> None:
        """Note that this weight [S] of an uplink group arrives; None: every row of every trial."""
        if weight is None and min(sent.cohort.counts) > 0:
            self._every_trial = True
            return
        some = (sent.cohort.rows_per_trial if weight is None else weight) > 0
        self._alive = some if self._alive is None else self._alive | some

    def get_received(self) -> c.Received:
        """Return what the server gets."""
        mean, count, each, delivered, reached, _ = self._columns()
        return c.Received(
            mean=mean,
            group_weight=count,
            per_device=each if self._apart else None,
            any_delivered=None if self._every_trial else self._alive,
            delivered_mask=None if all(rows is None for rows in delivered) else delivered,
            coordinate_weight=None if all(blocks is None for blocks in reached) else reached,
        )

    def report(self) -> c.LinkReport:
        """Return what it cost, and whom the server has heard."""
        return replace(self.tally.report(), delivered_mask_fns=self._columns()[-1])

    def _columns(self) -> list[tuple[Any, ...]]:
        """Return what `give` takes, each over the groups in the payload's order."""
        rows = [self._given[index] for index in sorted(self._given)]
        return list(zip(*rows, strict=True)) or [()] * 6


class Tally:
    """Sum up the cost of one delivery; shapes as in `LinkReport`.

    saved: coefficients to report, by name.

    Parameters
    ----------
    budget : powers and bandwidth of S trials.
    num_devices : K.
    """

    def __init__(self, budget: c.LinkBudget, num_devices: int) -> None:
        self._budget, self._population = budget, num_devices
        self._sums: dict[str, Tensor] = {}
        self._device_masks: dict[str, Tensor] = {}
        self.saved: c.Tensors = {}

    def add(self, **amounts: Tensor) -> None:
        """Add amounts of a group to those of the groups before.

        Parameters
        ----------
        symbols : [S] channel uses, one a second and hertz.
        bits : [S], on a digital uplink.
        side : [S] side information, in channel uses.
        energy : [S, K], of each device, in noise units.
        sent : [S, K] channel uses in which a device transmits, 1 / bandwidth each.
        """
        for name, value in amounts.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def scale(self, **factors: float) -> None:
        """Multiply amounts so far, named as in `add`; in double precision, so that whole numbers
        that become others are whole."""
        for name, factor in factors.items():
            if name in self._sums:
                value = self._sums[name]
                self._sums[name] = (value.double() * factor).to(value.dtype)

    def note(self, **masks: Tensor) -> None:
        """Note devices, [S, K] bool, beside those of the groups before.

        Parameters
        ----------
        on_air : they were on air.
        """
        for name, some in masks.items():
            self._device_masks[name] = (
                self._device_masks[name] | some if name in self._device_masks else some
            )

    def error(self, squared: Tensor, target: Tensor) -> None:
        """Add the squared aggregation error and the squared error-free aggregate, [S]."""
        self.add(error=squared, target=target)

    def report(self) -> c.LinkReport:
        """Return the report of the delivery."""
        sums, some = self._sums, self._device_masks
        zeros = torch.zeros_like(self._budget.bandwidth_hz)
        none = zeros[:, None].expand(-1, self._population)
        symbols = sums.get("symbols", zeros)
        energy, sent = sums.get("energy", none), sums.get("sent", none)
        nmse = zeros
        if "error" in sums:  # no error is none, also where the aggregate is zero
            nmse = sums["error"] / sums["target"].clamp_min(TINY)
        return c.LinkReport(
            symbols=symbols,
            bits=sums.get("bits", zeros),
            side_symbols=sums.get("side", zeros),
            airtime_s=symbols / self._budget.bandwidth_hz,
            participants=some.get("on_air", none > 0).sum(1).to(zeros.dtype),
            power=energy / sent.clamp_min(1.0),
            energy_j=energy * self._budget.unit_energy_j[:, None],
            on_air_s=sent / self._budget.bandwidth_hz[:, None],
            nmse=nmse,
            saved_tensors=self.saved,
        )
