"""Count how many devices have each of M values, and take the mean of the counts (TBMA).

A real is rounded to one of M levels v_1 .. v_M, and each level has a channel use of its own: a
device sends one pulse on the use of its level, with the channel inverted, and nothing on the
others. So the server has y_m = n_m + noise of variance N / eta, n_m how many of the K devices on
air have level m, and sum_m v_m y_m / K estimates their mean. Without projection the noise's part of
it has the variance (N / eta) sum_m v_m^2 / K^2. As counts are whole numbers, `project` can take
noise away: a rounded count strictly between 0 and K is wrong with probability
2 Q(1 / (2 sqrt(N / eta))), and the nearest whole numbers, not negative, of sum K are wrong less
often. Either way the error falls exponentially in the power, down to that of rounding to levels.

Every device adds one to a count: for a weighted mean of K devices it is K w_k x_k that is rounded.
One of M channel uses is used, so a pulse has M times the budget's power; the M uses of a real are
taken to have the fade of the first. All have to arrive with gain one, as by an inversion of the
channel. The ends -R and R of the levels are the largest magnitude that any device has to send, one
number a device of side information (or one for each block), or given; values beyond are clipped.

References
----------
Mergen, Tong 2006, "Type Based Estimation Over Multiaccess Channels".
Martinez-Gost, Perez-Neira, Lagunas 2026, "Exponential Noise Robustness of Type-Based Multiple
    Access for Over-the-Air Computation", arXiv 2605.10565.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import registry
from otafl.core.constants import get_constant
from otafl.core.contracts import LinkBudget, Tensors
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_family, make_step_key
from otafl.uplink.base import Counts, Transport
from otafl.uplink.delivery import Delivery
from otafl.uplink.impairments.impairments import NOISE, refuse_distortion
from otafl.uplink.interleaving import Uses
from otafl.uplink.layout import Slot, lay_out
from otafl.uplink.normalise import Normalisation
from otafl.uplink.on_air import OnAir
from otafl.uplink.power import Alignment
from otafl.uplink.receive import hand_over
from otafl.uplink.report import NOT_SAVED, Saves, account, coefficients
from otafl.uplink.segments import compute_energies, cut
from otafl.uplink.signal import Signal
from otafl.uplink.transmit import transmit

ROUNDING = declare_family("rounding_to_levels", __name__)

CHUNK = 1 << 14
"""Counts of a trial that are received at a time. Draws depend on it."""

TINY = 1e-30
"""Least range that is divided by."""

BENT = ("carrier_offset", "timing_offset", "clip_db", "adc_bits")
"""Impairments that bend single symbols, which counts are not computed with."""


class TypeBased(Transport):
    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True
    is_unbiased: ClassVar[bool] = False

    class Settings(Transport.Settings):
        name: Literal["type_based"] = "type_based"
        levels: int = Field(
            16, ge=2, le=4096, description="M, values that a real is rounded to, evenly spaced"
        )
        range: Literal["payload", "block"] | Annotated[float, Field(gt=0)] = Field(
            "payload",
            description="R, where levels go from -R to R: the largest magnitude that a device has "
            "to send, of the payload or of each block, which is side information; or a number, by "
            "which values are clipped",
        )
        rounding: Literal["stochastic", "nearest"] = Field(
            "stochastic",
            description="up or down at random, without bias, or to the nearest level",
        )
        project: Literal["none", "round", "lattice"] = Field(
            "none",
            description="what the server makes of the counts: takes them as they are, rounds each "
            "to 0 .. K, or takes the nearest whole numbers, not negative, whose sum is K",
        )

        example: ClassVar = {"power.name": "ci"}

        def check(self, scenario: Any) -> Iterable[Problem]:
            if not registry.make_component("power", scenario.power).is_inversion:
                policies = {
                    one: registry.load_component("power", one)
                    for one in registry.list_names("power")
                }
                would_do = [one for one, policy in policies.items() if policy().is_inversion]
                yield make_problem(
                    f"'{scenario.power.name}' does not go with transport: 'type_based', which "
                    "counts devices and needs all to arrive with gain one; "
                    f"{', '.join(would_do)} would do",
                    "power",
                    "transport",
                )
            if scenario.receiver.scale != "policy":
                yield make_problem(
                    f"{scenario.receiver.scale} does not go with transport: 'type_based', which "
                    "counts devices that arrive with gain one; leave scale out",
                    "receiver.scale",
                    "transport",
                )
            yield from refuse_distortion(scenario, BENT, "counts")

    def __init__(
        self,
        settings: Settings,
        *,
        budget: LinkBudget,
        alignment: Alignment,
        streams: Streams,
        saves: Saves = NOT_SAVED,
    ) -> None:
        self.settings, self.budget, self.alignment = settings, budget, alignment
        self.streams, self.saves = streams, saves
        self._policy_state = alignment.prepare()

    @torch.no_grad()
    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other: rows x_k [n, P] become levels, whose pulses add up
        to counts [S, M, P], from which the estimate [S, P] is made."""
        link, lengths = self.alignment, [rows.num_coordinates for rows in delivery.uplink]
        slot = lay_out(delivery, lengths, link.csi, delivery.limits, self.settings.levels)
        for uses, rows in zip(slot.uses, delivery.uplink, strict=True):
            pulses, normalised = self._pulses(slot, uses, rows)
            self._policy_state, on_air = transmit(
                slot, pulses, normalised, link, self._policy_state
            )
            values = self._values(rows)
            hand_over(on_air, *self._receive(on_air, rows, values), delivery)
            account(on_air, delivery, values.told)
            if self.saves.link:
                delivery.tally.saved |= self._list_saved(on_air, rows, values)

    def _pulses(self, slot: Slot, uses: Uses, sent: Signal) -> tuple[Signal, Normalisation]:
        """Return what devices send before p: a pulse of energy one for each real that they know, on
        one of its M channel uses."""
        ones = sent.x.new_ones(1, 1).expand_as(sent.x) if sent.mask is None else sent.mask
        pulses = replace(sent, x=ones)
        segments = cut(sent, uses, slot.cell_stops, blockwise=False, quadrature=False)
        energy = compute_energies(pulses, segments)
        lengths = slot.uses_per_symbol * get_constant(segments.lengths, energy.dtype, energy.device)
        power = segments.by_scope(energy) / segments.by_scope(lengths)
        return pulses, Normalisation(
            segments=segments,
            lengths=lengths,
            means=None,
            scale=torch.ones_like(sent.weight),
            row_energy=energy,
            energy=sent.grid(energy).mT,
            power=sent.grid(power).mT,
        )

    def _values(self, sent: Signal) -> Values:
        """Say what the rows of a group are rounded between."""
        wanted, scale = self.settings.range, sent.scale
        stops = sent.tensor_stops if wanted == "block" else [sent.num_coordinates]
        sizes = [stop - first for first, stop in zip([0, *stops], stops, strict=False)]
        if isinstance(wanted, float):
            ends = sent.x.new_full((sent.cohort.num_trials, 1), wanted)
        else:
            parts = (sent.x * scale[:, None]).abs().split(sizes, 1)
            rows = torch.stack([part.amax(1) for part in parts], 1)  # [n, B]
            ends = rows.new_zeros(sent.cohort.num_trials, len(stops))
            place = sent.cohort.trial[:, None].expand_as(rows)
            ends = ends.scatter_reduce(0, place, rows, "amax").clamp_min(TINY)
        told = 0 if isinstance(wanted, float) else len(stops)
        return Values(scale, ends, sizes, told)

    def _receive(self, on_air: OnAir, sent: Signal, values: Values) -> tuple[Tensor, Tensor]:
        """Count, and take the mean of the counts: the estimate and the error-free sum, [S, P]."""
        count, cohort, round = self.settings.levels, sent.cohort, on_air.slot.round
        width, draw, at = max(1, CHUNK // count), self._draw(round, sent), Air(on_air)
        ends = values.expand(sent.x.device)
        unit = _unit(count, sent.x)
        estimate = sent.empty_sum()
        for number, first in enumerate(range(0, sent.num_coordinates, width)):
            columns = slice(first, min(first + width, sent.num_coordinates))
            top = ends[:, columns]
            part = sent.x[:, columns] * values.scale[:, None] / top[cohort.trial]
            level = _levels(part, count, None if draw is None else draw[:, columns])
            noise = self.streams.draw_normal(
                NOISE / sent.index, make_step_key(round, number), (count, width)
            )
            y = at.counts(columns, level, count, noise[..., : top.shape[1]])
            y = project(y, at.senders(columns), self.settings.project)
            estimate[:, columns] = top * (unit @ y)
        estimate *= on_air.expand(on_air.unit * (on_air.weight > 0))
        return estimate, sent.sum(sent.exact[:, None])[:, 0]

    def _draw(self, round: int, sent: Signal) -> Tensor | None:
        """Draw the numbers [n, P] by which values are rounded; None to the nearest."""
        if self.settings.rounding == "nearest":
            return None
        who = sent.cohort.trial, sent.cohort.device
        return self.streams.draw_device_uniform(
            ROUNDING / sent.index, round, *who, (sent.num_coordinates,)
        )

    def _list_saved(self, on_air: OnAir, sent: Signal, values: Values) -> Tensors:
        """Return also what rounding adds to the error: the squared rounding errors of the rows,
        [S, Q, K], and R [S, B], from which the noise's part follows where nothing is projected."""
        count = self.settings.levels
        saved = coefficients(replace(on_air, sent=sent), self.saves.gram)
        scale = values.scale[:, None]
        top = values.expand(sent.x.device)[sent.cohort.trial]
        draw = self._draw(on_air.slot.round, sent)
        level = _levels(sent.x * scale / top, count, draw)
        unit = _unit(count, sent.x)
        off = (unit[level] * top / scale.clamp_min(TINY) - sent.x) * on_air.sent.x
        rounding = sent.grid(compute_energies(replace(sent, x=off), on_air.segments)).mT
        own = {"rounding": rounding, "range": values.ends}
        return saved | {f"{name}/{sent.index}": value for name, value in own.items()}


@dataclass(frozen=True)
class Values:
    """Hold what a group's rows are rounded between.

    scale: [n], of rows before. ends: [S, B], R of B stretches of so many reals, `sizes`. told:
    numbers that each device tells to find them.
    """

    scale: Tensor
    ends: Tensor
    sizes: list[int]
    told: int

    def expand(self, device: torch.device) -> Tensor:
        """Return R at each real, [S, P]."""
        if len(self.sizes) == 1:
            return self.ends.expand(-1, self.sizes[0])
        return self.ends.repeat_interleave(torch.tensor(self.sizes, device=device), 1)


class Air:
    """Add up the pulses of a transmission, a few reals after the other."""

    def __init__(self, on_air: OnAir) -> None:
        self._signal, self.segments = on_air.signal, on_air.segments
        gain = self._signal.take_rows(on_air.gain.real.mT) * on_air.active_rows
        self._gain, self._active = gain, on_air.active_rows
        self._spread = (on_air.channels.noise / on_air.coefficients.eta).sqrt()
        self._column = self.segments.of_columns(gain.device)
        self._known = on_air.sent.x

    def counts(self, columns: slice, level: Tensor, count: int, noise: Tensor) -> Tensor:
        """Return y [S, M, C] of devices that have these levels [n, C], with standard normal noise
        [S, M, C]."""
        q = self._column[columns]
        cohort = self._signal.cohort
        y = noise * self._spread[:, None, q]
        rows = cohort.pad_by_trial(self._gain[:, q] * self._signal.x[:, columns])
        y.scatter_add_(1, cohort.pad_by_trial(level), rows)
        return y

    def senders(self, columns: slice) -> Tensor:
        """Return K [S, C], those who count and know a real."""
        known = self._active[:, self._column[columns]] * self._known[:, columns]
        return self._signal.sum_by_trial(known)


def _unit(count: int, like: Tensor) -> Tensor:
    """Return v_m / R, [M]."""
    return torch.linspace(-1.0, 1.0, count, dtype=like.dtype, device=like.device)


def _levels(part: Tensor, count: int, draw: Tensor | None) -> Tensor:
    """Return the levels [n, C] int64 of values over R, rounded up where the uniform draw says so,
    or to the nearest."""
    place = (part.clamp(-1.0, 1.0) + 1.0) * (0.5 * (count - 1))
    place = place.round() if draw is None else (place + draw).floor()
    return place.clamp(0, count - 1).long()


def project(y: Tensor, senders: Tensor, how: str) -> Tensor:
    """Return what the server takes for the counts, of y [S, M, C] of K senders [S, C]."""
    if how == "none":
        return y
    most = senders[:, None]
    return y.round().clamp_min(0.0).minimum(most) if how == "round" else nearest_type(y, most)


def nearest_type(y: Tensor, total: Tensor) -> Tensor:
    """Return the nearest whole numbers to y [S, M, C], none negative, whose sum is total [S, 1, C].

    y is moved onto the simplex of that sum by a common shift, and rounded. That is the nearest to y
    of all with its sum. Units that are missing or too many by then go, one each, to where they cost
    least, as the second unit of a place never does before the first of another.
    """
    count = y.shape[1]
    ordered = y.sort(1, descending=True).values
    ranks = torch.arange(1, count + 1, dtype=y.dtype, device=y.device)[:, None]
    shift = (ordered.cumsum(1) - total) / ranks
    kept = (ordered > shift).sum(1, keepdim=True).clamp_min(1)
    near = (y - shift.gather(1, kept - 1)).round().clamp_min(0.0)
    missing = total - near.sum(1, keepdim=True)
    up = _rank(near - y) < missing
    down = _rank(torch.where(near > 0, y - near, torch.inf)) < -missing
    return near + up.to(y.dtype) - down.to(y.dtype)


def _rank(cost: Tensor) -> Tensor:
    """Return the places [S, M, C] of costs, from the lowest, 0."""
    return cost.argsort(dim=1, stable=True).argsort(dim=1)
