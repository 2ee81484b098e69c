"""The section `robust`: devices in groups with slots of their own, and a rule over what they sent.

Devices are assigned to G groups at random, anew in each round. Each group transmits in channel uses
of its own, with its own power control and receive scaling, so the server gets G means. A rule turns
them into one aggregate, on which the method and the server optimiser act. On an uplink that tells
devices apart, a group's mean is computed from the single updates, and costs nothing.

References
----------
Sifaou, Li 2021, "Robust Federated Learning via Over-The-Air Computation", arXiv 2111.01221.
Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing",
    ICLR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.custom import get_class
from otafl.core import contracts as c
from otafl.core import registry, settings
from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.hyper import build_hyper
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.core.stateful import Stateful
from otafl.models.base import flatten, unflatten
from otafl.robust.base import Inputs
from otafl.robust.grouping import draw_groups, join_report, select_received, split_payload

Decode = Callable[[c.Received], c.Received]

ROUNDING = 1e-9
"""A share of inputs that is below a whole number by less than this is that number."""


class RobustSettings(settings.Settings):
    """The section `robust` of a scenario."""

    groups: Literal["devices"] | int = 1
    """groups G that the devices of a round are assigned to at random; each transmits in channel
    uses of its own. devices: one device a group"""
    rule: Any = declare_choice("rule", "aggregate of the group means")
    assumed_share: float = declare_stackable(0.2, ge=0, lt=0.5)
    """share of the inputs of a rule that may be corrupted, for rules that assume a number f of
    them: f is this share of the inputs, rounded down"""

    @property
    def is_active(self) -> bool:
        """Whether there are groups or a robust rule."""
        return self.groups != 1 or self.rule.is_robust

    def find_conflicts(self) -> Iterator[str]:
        """Yield a sentence for fewer than one group."""
        if self.groups != "devices" and self.groups < 1:
            yield f"groups: got {self.groups}; must be 1 or more, or devices"

    def count_groups(self, devices: Any) -> int:
        """Count the groups G, of a scenario's section `devices`."""
        return _count_transmitters(devices) if self.groups == "devices" else int(self.groups)

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return what a rule or groups do not go with."""
        if self.is_active:
            yield from self._find_rule_problems(scenario)
            yield from self._find_part_problems(scenario)

    def _find_rule_problems(self, scenario: Any) -> Iterator[Problem]:
        """Yield what is wrong between rule, groups and devices."""
        count, most = self.count_groups(scenario.devices), _count_transmitters(scenario.devices)
        if count > most:
            text = f"got {count}, more than the {most} devices that transmit; at most {most}"
            yield make_problem(text, "robust.groups", "devices")
            return
        if not self.rule.is_robust:
            return
        if count == 1:
            text = (
                f"'{self.rule.name}' needs several inputs, and the server gets one sum; "
                "use robust.groups: devices (each update), or 3 or more (group means)"
            )
            yield make_problem(text, "robust.rule", "robust.groups")
            return
        corrupted = int(self.assumed_share * count + ROUNDING)  # f, as the rule assumes
        wrong = self.rule.find_problem(count, corrupted)
        if wrong:
            text = f"'{self.rule.name}' {wrong}"
            yield make_problem(text, "robust.rule", "robust.groups", "robust.assumed_share")

    def _find_part_problems(self, scenario: Any) -> Iterator[Problem]:
        """Yield the components that groups and rules do not go with."""
        protocol, method = scenario.devices.protocol, scenario.algorithm
        if protocol.goes_on:
            text = (
                f"'{protocol.name}' admits as many devices to a slot as are ready, and groups and "
                "rules need their number; use protocol: rounds, or leave robust out"
            )
            yield make_problem(text, "devices.protocol", "robust")
        if scenario.topology.name == "graph":
            text = "'graph' has no server that could apply a rule; use topology: star"
            yield make_problem(text, "topology", "robust")
        kind = get_class(method)
        if kind.describe_payload(method.values).needs == "each":
            why = "needs the update of each device by itself"
        else:
            why = kind.excludes.get("rules", "")
        if why:
            text = f"'{method.name}' {why}; use another algorithm, such as fedavg"
            yield make_problem(text, "algorithm", "robust")
        transport = registry.load_component("transport", scenario.transport.name)
        shares = self.groups != 1 and transport.counts != "all" and transport.obeys_power
        if shares and getattr(scenario.power.values, "plans_slots", False):
            text = (
                f"'{scenario.power.name}' plans its energy over slots that all devices share; "
                "use another policy, such as ci or gbma"
            )
            yield make_problem(text, "power", "robust.groups")


class RobustAggregation(Stateful):
    """Groups and rule of S trials.

    Parameters
    ----------
    scenarios : sequence of Scenario
        Scenarios of the S trials, which differ in stackable fields only.
    deliver_fn : callable
        Delivers a payload in turns, with the arguments and results of `otafl.uplink.base.deliver`
        from the payload on.
    has_shared_slots : bool
        Whether devices share channel uses on the uplink.
    streams : Streams
        Random streams of the trials.

    Attributes
    ----------
    memory : dict of Tensor, float [S, ...]
        Memory of the rule, empty before the first round.
    """

    state_attrs: ClassVar = ("memory",)

    def __init__(
        self,
        scenarios: Sequence[Any],
        deliver_fn: Callable[..., tuple[c.Received, c.LinkReport]],
        has_shared_slots: bool,
        streams: Streams,
    ) -> None:
        sections: list[RobustSettings] = [one.robust for one in scenarios]
        self.settings, self._deliver, self._streams = sections[0], deliver_fn, streams
        self.num_groups = self.settings.count_groups(scenarios[0].devices)
        self.rule = self.settings.rule.values
        self._share = build_hyper(sections, streams)["assumed_share"]
        self._has_slots = self.num_groups > 1 and has_shared_slots
        self.memory: c.Tensors = {}
        self._group_index: Tensor | None = None

    def deliver(
        self,
        payload: c.Payload,
        cohort: c.Cohort,
        channel: c.ChannelState,
        round: int,
        limits: c.TransmitLimits,
    ) -> tuple[c.Received, c.LinkReport]:
        """Deliver the payload of a slot as `otafl.uplink.base.deliver`, group by group.

        Parameters
        ----------
        payload : Payload
            The L payload groups of the transmitters.
        cohort : Cohort
            The transmitters.
        channel : ChannelState
            Channel of the slot.
        round : int
            Number of the slot.
        limits : TransmitLimits
            Limits of the transmissions besides the power budget.

        Returns
        -------
        tuple of Received and LinkReport
            What the server received, L entries a group, and what it cost.
        """
        for group in payload:
            rows = group.row_index  # a rule needs every row once, in order
            partial = rows is not None and not rows.equal(
                torch.arange(cohort.num_rows, device=rows.device)
            )
            if group.mask is not None or partial:
                raise UserError(
                    "robust: devices of this algorithm know different parts of the model, and the "
                    "inputs of a rule must be comparable; use an algorithm whose devices train the "
                    "whole model, such as fedavg"
                )
        self._group_index = draw_groups(cohort, self.num_groups, round, self._streams)
        if not self._has_slots:
            return self._deliver(payload, cohort, channel, round, limits)
        split = split_payload(payload, self._group_index, self.num_groups)
        received, report = self._deliver(split, cohort, channel, round, limits, self.num_groups)
        return received, join_report(report, len(payload))

    def aggregate(self, received: c.Received, decode: Decode, cohort: c.Cohort) -> c.Received:
        """Decode what the server received, and apply the rule.

        Parameters
        ----------
        received : Received
            What it received of the last slot, as `deliver` returned it.
        decode : callable
            The codec's decoder.
        cohort : Cohort
            The transmitters of the slot.

        Returns
        -------
        Received
            One aggregate, with the weight that was delivered of all groups.
        """
        index, num_groups = self._group_index, self.num_groups
        assert index is not None
        if self._has_slots:
            parts = len(received.mean) // num_groups
            groups = [decode(select_received(received, one, parts)) for one in range(num_groups)]
            # the weights of the devices of each group, out of 1, [S, G]
            place = cohort.trial * num_groups + index
            total = cohort.weight.new_zeros(cohort.num_trials * num_groups)
            share = total.index_add_(0, place, cohort.normalised_weight).view(-1, num_groups)
            x = torch.stack([_flatten_parts(one.mean) for one in groups], 1)
            weights = torch.stack([_flatten_weights(one) for one in groups], 1)
            inputs = self._build_inputs(x, weights * share[..., None])
            template = _sum_delivered(groups, share)
        else:
            template = decode(received)
            inputs = self._collect_rows(template, cohort, index)
        if self.rule.is_robust:  # which would not survive inputs that are not finite
            finite = inputs.x.isfinite().all(2, keepdim=True)
            x = inputs.x.where(finite, 0.0)
            inputs = self._build_inputs(x, inputs.weight.where(finite, 0.0))
        memory = self.memory or self.rule.init(torch.zeros_like(inputs.x[:, 0]))
        aggregate, new = self.rule.aggregate(inputs, memory)
        any_delivered = inputs.num_inputs > 0
        self.memory = {
            name: torch.where(c.unsqueeze_like(any_delivered, block), block, memory[name])
            for name, block in new.items()
        }
        if template.any_delivered is not None:
            any_delivered = any_delivered & template.any_delivered
        # what the method gets, of an aggregate [S, P]
        shapes = [{n: tuple(b.shape[1:]) for n, b in tensors.items()} for tensors in template.mean]
        sizes = [sum(b[0].numel() for b in tensors.values()) for tensors in template.mean]
        pieces = zip(aggregate.split(sizes, 1), shapes, strict=True)
        means = tuple(unflatten(piece, shape) for piece, shape in pieces)
        return replace(template, mean=means, any_delivered=any_delivered)

    def _collect_rows(self, received: c.Received, cohort: c.Cohort, group_index: Tensor) -> Inputs:
        """Collect the means of groups of single updates."""
        assert received.per_device is not None
        rows, weight = _flatten_parts(received.per_device), cohort.normalised_weight
        for mask in received.delivered_mask or ():
            if mask is not None:
                weight = weight * mask
        place = cohort.trial * self.num_groups + group_index
        shape = (cohort.num_trials, self.num_groups)
        total = rows.new_zeros(shape[0] * shape[1]).index_add_(0, place, weight)
        x = rows.new_zeros(len(total), rows.shape[1])
        share = weight / total[place].clamp_min(torch.finfo(total.dtype).tiny)
        x.index_add_(0, place, torch.where(share > 0, share, 0.0)[:, None] * rows)
        return self._build_inputs(x.view(*shape, -1), total.view(*shape, 1))

    def _build_inputs(self, x: Tensor, weight: Tensor) -> Inputs:
        """Build the inputs of a rule, with the assumed number of corrupted ones."""
        there = (weight > 0).any(2).sum(1)
        corrupted = (self._share.double() * there + ROUNDING * 100).floor().long()
        return Inputs(x, weight, corrupted)


def _count_transmitters(devices: Any) -> int:
    """Count the most devices that transmit in a slot."""
    most: int = devices.count
    if devices.late != "next":
        most = devices.senders or devices.participants or most
    return most


def _flatten_parts(parts: Sequence[c.Tensors]) -> Tensor:
    """Put the tensors of all payload groups side by side, [n, P]."""
    columns = [flatten(tensors) for tensors in parts]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def _flatten_weights(received: c.Received) -> Tensor:
    """Put the delivered weights side by side, [S, P]; [S, 1] if they are equal everywhere."""
    if received.coordinate_weight is None and len(received.mean) == 1:
        count = received.group_weight[0]
        assert isinstance(count, Tensor)
        return count[:, None]
    return torch.cat(
        [
            received.delivered_weight(index, name).expand_as(block).flatten(1)
            for index, tensors in enumerate(received.mean)
            for name, block in tensors.items()
        ],
        1,
    )


def _sum_delivered(groups: Sequence[c.Received], share: Tensor) -> c.Received:
    """Sum the weights that were delivered of all groups, under their shares [S, G]."""
    first = groups[0]

    def add(part: int, name: str) -> Tensor:
        terms = [one.delivered_weight(part, name) for one in groups]
        return torch.stack([w * c.unsqueeze_like(share[:, g], w) for g, w in enumerate(terms)]).sum(
            0
        )

    def add_counts(part: int) -> Tensor:
        counts = [one.group_weight[part] for one in groups]
        # a masked group, whose weights are per coordinate, has been refused
        known = [count for count in counts if isinstance(count, Tensor)]
        return (share * torch.stack(known, 1)).sum(1)

    weights = first.coordinate_weight
    if weights is not None:
        weights = tuple(
            None if one is None else {name: add(part, name) for name in tensors}
            for part, (one, tensors) in enumerate(zip(weights, first.mean, strict=True))
        )
    return replace(
        first,
        group_weight=tuple(map(add_counts, range(len(first.mean)))),
        coordinate_weight=weights,
    )
