"""Counts of the devices that have each of M values, and the mean of the counts (TBMA).

A coordinate is rounded to one of M levels v_1 .. v_M, and each level has its own channel use. A
device sends one pulse on the use of its level, with inverted channel, and nothing on the others.
The server receives y_m = n_m + noise of variance N / eta, where n_m of the K devices on air have
level m, and estimates their mean by

    sum_m v_m y_m / K.

Without projection the noise contributes the variance (N / eta) sum_m v_m^2 / K^2. Because counts
are integers, `project` can remove noise. A rounded count strictly between 0 and K is wrong with
probability 2 Q(1 / (2 sqrt(N / eta))). The nearest non-negative integers with sum K are wrong less
often. In both cases the error decreases exponentially with the power, down to that of rounding to
levels.

Every device adds one to a count: for a weighted mean of K devices it rounds K w_k x_k. One of M
channel uses is used, so a pulse has M times the budget's power. The M uses of a coordinate have the
fade of the first. All devices must arrive with effective gain one, as by channel inversion. The
ends -R and R of the levels are the largest magnitude of any device, which costs one real number of
side information per device (or one per tensor), or given; larger values are clipped.

The counts are a histogram, of which the server can also take the median or a trimmed mean. These
bound what an attacker does. Then every device sends x_k itself and counts once, whatever its
weight. Negative counts are taken for 0. An attacker can still widen the range, unless it is given.

References
----------
Mergen, Tong 2006, "Type Based Estimation Over Multiaccess Channels".
Martinez-Gost, Perez-Neira, Lagunas 2025, "Robust Over-the-Air Computation with Type-Based Multiple
    Access", arXiv 2502.19014.
Martinez-Gost, Perez-Neira, Lagunas 2026, "Exponential Noise Robustness of Type-Based Multiple
    Access for Over-the-Air Computation", arXiv 2605.10565.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.custom import get_class
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.robust.base import Inputs
from otafl.uplink import noise
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, lay_out
from otafl.uplink.levels import Levels, LevelSettings
from otafl.uplink.signal import cut, split_columns
from otafl.uplink.transmission import Transmission, account, receive, transmit

CHUNK = 1 << 14
"""Counts of a trial that are received at a time. Draws depend on it."""


class TypeBased(Transport):
    """Type-based multiple access."""

    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True

    class Settings(LevelSettings):
        name: Literal["type_based"] = "type_based"
        levels: int = Field(16, ge=2, le=4096)
        """M, number of evenly spaced levels of a coordinate"""
        project: Literal["none", "round", "lattice"] = "none"
        """projection of the received counts by the server: none, rounding of each to 0 .. K, or the
        nearest non-negative integers with sum K"""
        estimate: Literal["mean", "median", "trimmed_mean"] = "mean"
        """statistic of the counts that is the aggregate; all but the mean count devices equally"""
        trimmed_share: float = Field(0.2, gt=0, lt=0.5)
        """share of the devices that a trimmed mean drops at each end"""

        receives: ClassVar[str] = "counts"

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from super().check(scenario)
            if self.estimate != "mean" and "rules" in get_class(scenario.algorithm).excludes:
                text = (
                    f"{self.estimate} gives no sum, which algorithm '{scenario.algorithm.name}' "
                    "needs; use mean"
                )
                yield make_problem(text, "transport.estimate", "algorithm")

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._policy_state = self.alignment.prepare()

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other.

        Rows x_k [n, P] become levels, whose pulses add up to counts [S, M, P], from which the
        server computes the estimate [S, P].
        """
        with torch.no_grad():
            link, lengths = self.alignment, [rows.num_coordinates for rows in delivery.uplink]
            slot = lay_out(delivery, lengths, link.csi, delivery.limits, self.settings.levels)
            for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
                estimate = self.settings.estimate
                if estimate != "mean" and (rows.mask is not None or not rows.linear):
                    raise UserError(
                        f"transport.estimate: '{estimate}' needs the same coordinates of all "
                        "devices, and a mean of them; the algorithm or the codec gives others; use "
                        "estimate: mean"
                    )
                # a pulse of energy one, before p, on one of the M channel uses of a coordinate
                pulses = rows.x.new_ones(1, 1).expand_as(rows.x) if rows.mask is None else rows.mask
                sent = replace(rows, x=pulses)
                segments = cut(uses, slot.cell_stops)
                self._policy_state, on_air = transmit(
                    slot, sent, segments, link, self._policy_state, is_scaled=True
                )
                scale = rows.scale if estimate == "mean" else torch.ones_like(rows.weight)
                levels = Levels(
                    rows, scale, self.settings.levels, self.settings, self.parts.streams, slot.round
                )
                receive(on_air, *self._receive(on_air, levels), delivery)
                account(on_air, delivery, levels.num_side_scalars)
                if self.parts.save_link:
                    delivery.saved |= levels.collect(on_air, self.parts.save_gram)

    def _receive(self, on_air: Transmission, levels: Levels) -> tuple[Tensor, Tensor]:
        """Receive counts and compute their mean: the estimate and the error-free sum, [S, P].

        A few coordinates at a time, y [S, M, C] are the received counts.
        """
        count, sent, round = levels.count, levels.sent, on_air.slot.round
        cohort, signal = sent.cohort, on_air.signal
        width, unit, active = max(1, CHUNK // count), levels.values, on_air.active_rows
        gain = (signal.take_rows(on_air.gain.real.mT) * active).to(active.dtype)
        spread, segment = on_air.sum_noise_std, on_air.segments.index_segments(gain.device)
        estimate = sent.empty_sum()
        for number, columns in enumerate(split_columns(sent.num_coordinates, width)):
            q, top = segment[columns], levels.ends[:, columns]
            drawn = noise.draw_count_noise(
                self.parts.streams, sent.index, round, number, (count, width)
            )
            y = drawn[..., : top.shape[1]] * spread[:, None, q]
            pulses = cohort.pad_by_trial(gain[:, q] * signal.x[:, columns])
            y.scatter_add_(1, cohort.pad_by_trial(levels.round(columns)), pulses)
            senders = signal.sum_by_trial(active[:, q] * on_air.sent.x[:, columns])
            y = project(y, senders, self.settings.project)
            estimate[:, columns] = top * self._summarise(y, unit, senders)
        if self.settings.estimate == "mean":
            estimate *= on_air.expand(on_air.sum_unit)
            return estimate, sent.sum(sent.exact[:, None])[:, 0]
        # the statistic of the values that were sent, without rounding and noise, [S, P]
        x = sent.cohort.pad_by_trial(sent.x)
        weight = sent.cohort.pad_by_trial(torch.ones_like(sent.weight))[..., None]
        share = self.settings.trimmed_share
        trimmed = (share * sent.cohort.rows_per_trial + CLOSE).long()
        name = "coordinate_median" if self.settings.estimate == "median" else "trimmed_mean"
        rule: Any = registry.load_settings_class("rule", name)()
        exact: Tensor = rule.aggregate(Inputs(x, weight, trimmed), {})[0]
        return estimate * on_air.expand(1.0 * (on_air.weight > 0)), exact

    def _summarise(self, y: Tensor, unit: Tensor, senders: Tensor) -> Tensor:
        """Return the statistic [S, C] of the counts y [S, M, C], over R; of the mean, K times."""
        how = self.settings.estimate
        if how == "mean":
            return unit @ y
        if how == "median":
            return compute_median(y, unit)
        trimmed = (self.settings.trimmed_share * senders + CLOSE).floor()
        return compute_trimmed_mean(y, unit, trimmed)


def project(y: Tensor, senders: Tensor, how: str) -> Tensor:
    """Project received counts to feasible ones.

    Parameters
    ----------
    y : Tensor, float [S, M, C]
        Received counts.
    senders : Tensor, float [S, C]
        Number of devices, K.
    how : {"none", "round", "lattice"}
        Projection.

    Returns
    -------
    Tensor, float [S, M, C]
        The counts that the server uses.
    """
    if how == "none":
        return y
    most = senders[:, None]
    return y.round().clamp_min(0.0).minimum(most) if how == "round" else find_nearest_type(y, most)


def find_nearest_type(y: Tensor, total: Tensor) -> Tensor:
    """Return the nearest non-negative integers to y whose sum over the levels is `total`.

    Parameters
    ----------
    y : Tensor, float [S, M, C]
        Received counts.
    total : Tensor, float [S, 1, C]
        Number of devices, K.

    Returns
    -------
    Tensor, float [S, M, C]
        Integer counts.

    Notes
    -----
    A common shift moves y to the nearest point of the simplex with that sum, which is then rounded.
    Missing or surplus units are added or removed, one at each level, where they cost least: the
    second unit of a level never costs less than the first of another.
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
    """Return the ranks [S, M, C] of costs, 0 for the lowest."""
    return cost.argsort(dim=1, stable=True).argsort(dim=1)


CLOSE = 1e-3
"""Counts that differ by less are equal."""


def compute_median(counts: Tensor, values: Tensor) -> Tensor:
    """Compute the median of values v_m that occur n_m times.

    Between two values it is their mean. Negative counts, which noise makes, are taken for 0.

    Parameters
    ----------
    counts : Tensor, float [S, M, C]
        Counts n_m, of C histograms a trial.
    values : Tensor, float [M]
        Values v_m, rising.

    Returns
    -------
    Tensor, float [S, C]
        The median.
    """
    cumulative = counts.clamp_min(0.0).cumsum(1)
    half = 0.5 * cumulative[:, -1:]
    last = len(values) - 1
    lower = (cumulative < half - CLOSE).sum(1).clamp_max(last)
    upper = (cumulative <= half + CLOSE).sum(1).clamp_max(last)
    return 0.5 * values[lower] + 0.5 * values[upper.maximum(lower)]


def compute_trimmed_mean(counts: Tensor, values: Tensor, trimmed: Tensor) -> Tensor:
    """Compute the mean of values without the t smallest and the t largest.

    Parameters
    ----------
    counts : Tensor, float [S, M, C]
        Counts n_m of the values, of C histograms a trial. Negative ones are taken for 0.
    values : Tensor, float [M]
        Values v_m, rising.
    trimmed : Tensor, float [S, C]
        Number t of values that are left out at each end.

    Returns
    -------
    Tensor, float [S, C]
        The trimmed mean, 0 where no value is left.
    """
    cumulative = counts.clamp_min(0.0).cumsum(1)
    first = trimmed[:, None]
    last = cumulative[:, -1:] - first
    ends = cumulative.minimum(last).maximum(first)
    starts = torch.cat([first, ends[:, :-1]], 1)
    kept = ends - starts
    return (values[:, None] * kept).sum(1) / kept.sum(1).clamp_min(CLOSE)
