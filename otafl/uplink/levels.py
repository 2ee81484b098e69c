"""Levels of a coordinate, to which transports with discrete symbols round the rows of a group.

They lie evenly from -R to R. R is the largest magnitude of any device, which costs one real number
of side information per device (or one per tensor), or given; larger values are clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_family
from otafl.core.tensors import get_constant
from otafl.uplink.base import Transport
from otafl.uplink.impairments.impairments import refuse_distortion
from otafl.uplink.report import collect_coefficients
from otafl.uplink.signal import Signal, compute_energies
from otafl.uplink.transmission import Transmission

ROUNDING = declare_family("rounding_to_levels", __name__)

TINY = 1e-37
"""Smallest range that is divided by."""

UNMODELLED = ("carrier_offset", "timing_offset", "clip_db", "adc_bits")
"""Impairments of single symbols, which a model of received integers does not include."""


class LevelSettings(Transport.Settings):
    """Common settings of transports that round coordinates to levels and receive integers."""

    range: Literal["payload", "block"] | Annotated[float, Field(gt=0, le=1e30)] = "payload"
    """R, where levels go from -R to R: the largest magnitude of any device, of the payload or of
    each tensor, which is side information; or a number, at which values are clipped"""
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    """rounding to a level: up or down at random, without bias, or to the nearest"""

    example: ClassVar = {"power.name": "ci"}
    receives: ClassVar[str]
    """What the server receives, such as "counts"."""

    def check(self, scenario: Any) -> Iterable[Problem]:
        return refuse_misaligned(scenario, self.receives)


def refuse_misaligned(scenario: Any, receives: str) -> Iterator[Problem]:
    """Yield what would give devices other gains than one, or distort single symbols.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    receives : str
        What the transport receives, such as "counts".

    Yields
    ------
    Problem
        One for each such part of the scenario.
    """
    name = scenario.transport.name
    need = f"which receives {receives} and needs all effective gains to be one"
    if not registry.make_component("power", scenario.power).is_inversion:
        fitting = registry.list_fitting("power", lambda one: one().is_inversion)
        text = (
            f"'{scenario.power.name}' does not go with transport: '{name}', {need}; use "
            f"{' or '.join(fitting)}"
        )
        yield make_problem(text, "power", "transport")
    if scenario.receiver.scale != "policy":
        text = (
            f"{scenario.receiver.scale} does not go with transport: '{name}', {need}; leave scale "
            "out"
        )
        yield make_problem(text, "receiver.scale", "transport")
    yield from refuse_distortion(scenario, UNMODELLED, receives)


class Levels:
    """Levels of the rows of a group.

    Parameters
    ----------
    sent : Signal
        Rows x_k [n, P].
    scale : Tensor, float [n]
        Factors of the rows before rounding.
    count : int
        Number of levels, M.
    settings : LevelSettings
        Range and rounding.
    streams : Streams
        Source of the random numbers of stochastic rounding.
    round : int
        The round.

    Attributes
    ----------
    ends : Tensor, float [S, P]
        Ends R of the levels at each coordinate.
    num_side_scalars : int
        Real numbers of side information from each device.
    """

    def __init__(
        self,
        sent: Signal,
        scale: Tensor,
        count: int,
        settings: LevelSettings,
        streams: Streams,
        round: int,
    ) -> None:
        self.sent, self.scale, self.count, self._draw = sent, scale, count, None
        whole = settings.range != "block"
        self._stops = [sent.num_coordinates] if whole else sent.tensor_stops
        if isinstance(settings.range, float):
            self.ends, self.num_side_scalars = torch.full_like(sent.empty_sum(), settings.range), 0
        else:
            self.ends, self.num_side_scalars = self._find_ends(), len(self._stops)
        if settings.rounding == "stochastic":
            rows, shape = (sent.cohort.trial, sent.cohort.device), (sent.num_coordinates,)
            self._draw = streams.draw_device_uniform(ROUNDING / sent.index, round, *rows, shape)

    def _find_ends(self) -> Tensor:
        """Find the largest magnitude of any device, of the payload or of each tensor, [S, P]."""
        sent, stops = self.sent, self._stops
        sizes = tuple(stop - first for first, stop in zip([0, *stops], stops, strict=False))
        parts = (sent.x * self.scale[:, None]).abs().split(sizes, 1)
        rows = torch.stack([part.amax(1) for part in parts], 1)  # [n, B]
        ends = rows.new_zeros(sent.cohort.num_trials, len(stops))
        place = sent.cohort.trial[:, None].expand_as(rows)
        ends = ends.scatter_reduce(0, place, rows, "amax").clamp_min(TINY)
        lengths = get_constant(sizes, torch.int64, ends.device)
        return ends.repeat_interleave(lengths, 1, output_size=sent.num_coordinates)

    @property
    def values(self) -> Tensor:
        """The levels relative to R, [M]."""
        x = self.sent.x
        return torch.linspace(-1.0, 1.0, self.count, dtype=x.dtype, device=x.device)

    def round(self, columns: slice = slice(None)) -> Tensor:
        """Round columns of the rows to levels, int64 [n, C] in 0..M - 1."""
        top = self.ends[self.sent.cohort.trial, columns]
        part = self.sent.x[:, columns] * self.scale[:, None] / top
        place = (part.clamp(-1.0, 1.0) + 1.0) * (0.5 * (self.count - 1))
        place = place.round() if self._draw is None else (place + self._draw[:, columns]).floor()
        return place.clamp(0, self.count - 1).long()

    def collect(self, on_air: Transmission, save_gram: bool) -> Tensors:
        """Return the coefficients to save, the squared rounding errors [S, Q, K], and R [S, B].

        The variance of the rounded sum follows from them.
        """
        sent, factor = self.sent, self.scale[:, None].clamp_min(TINY)
        rounded = self.values[self.round()] * self.ends[sent.cohort.trial] / factor
        has = 1.0 if sent.mask is None else sent.mask
        off = (rounded - sent.x) * has
        own = {
            "rounding": sent.grid(compute_energies(off, on_air.segments)).mT,
            "range": self.ends[:, [stop - 1 for stop in self._stops]],
        }
        saved = collect_coefficients(replace(on_air, sent=sent), save_gram)
        return saved | {f"{name}/{sent.index}": value for name, value in own.items()}
