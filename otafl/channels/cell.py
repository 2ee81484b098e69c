"""Cell of 3GPP: urban micro (umi), urban macro (uma) or rural macro (rma).

Line of sight, path loss, shadowing, indoor loss and rays come from Sionna (`cell_drop`). The
large-scale gain, which is path loss, penetration loss and shadowing, is separate from the fading,
whose mean power is one. Without `snr_db`, budgets are `tx_power_dbm` over thermal noise; with it,
they are the SNR at the trial's mean gain. Antennas are those of the CDL profiles.

A drop is constant during a run: line of sight, indoor or outdoor, penetration loss, and angles and
delays of the clusters. Phases of devices that do not move are drawn in each round. With `mobility:
linear`, path loss follows the position, and shadowing is a normal random field over the cell with
the standard's correlation exp(-d / d_cor) (eq. 7.4-5), conditioned on its value in the drop. With
`mobility: {name: trace}` the same holds along paths from a file, whose first positions are those of
the drop, at the time of the clock.

References
----------
3GPP TR 38.901, "Study on channel model for frequencies from 0.5 to 100 GHz", 7.2 to 7.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, InterfererMap, Positions
from otafl.channels.cell_drop import (
    DEVICES_PER_DROP,
    CellDrop,
    SionnaCell,
    build_cell_rays,
    draw_positions,
    reflect_at_circle,
)
from otafl.channels.device_paths import DevicePaths, TraceMobility
from otafl.channels.fading import FAR, ROUNDS_PER_BLOCK, RoundBlocks
from otafl.channels.ofdm import NUMBERS_AT_ONCE, OfdmChannel, Pairs, group_frequencies
from otafl.channels.plane_waves import GeometricSettings, PlaneWaves, draw_velocities
from otafl.core.rng import declare_purpose
from otafl.core.units import db_to_linear

SHADOWING = declare_purpose("shadowing", __name__)

POWER_DBM, SPEED_KMH, CARRIER_HZ, DISTANCE_M = (-40, 31), (0, 500), (5e8, 1e11), (10, 5_000)
VALID_RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "tx_power_dbm": dict.fromkeys(("umi", "uma", "rma"), POWER_DBM),
    "speed_kmh": dict.fromkeys(("umi", "uma", "rma"), SPEED_KMH),
    "carrier_hz": {"umi": CARRIER_HZ, "uma": CARRIER_HZ, "rma": (5e8, 3e10)},
    "min_distance_m": dict.fromkeys(("umi", "uma", "rma"), DISTANCE_M),
    "cell_radius_m": dict.fromkeys(("umi", "uma", "rma"), DISTANCE_M),
    "server_height_m": {"umi": (10, 10), "uma": (25, 25), "rma": (10, 150)},
}
"""Key -> cell -> range in which its model was fitted (TR 38.901, Table 7.4.1-1 and its notes), or
that devices of a cellular network have: power of any class, and floor, of TS 38.101-1."""

FIELD_WAVES = 128
"""Number of cosines in a shadowing field."""


def _declare_by_name(defaults: Mapping[str, Any], description: str, **bounds: Any) -> Any:
    """Declare a field whose default depends on the cell's name."""
    return Field(
        default_factory=lambda given: defaults[given["name"]], description=description, **bounds
    )


class Cell(OfdmChannel):
    """Channel of a 3GPP cell; h [S, K, A, B, F] is complex.

    E|h|^2 = 1 over the phases of the rays.

    Attributes
    ----------
    line_of_sight, indoor : Tensor, bool [S, K]
        Devices with a line of sight, and devices indoors.
    links : CellDrop
        The whole drop, of the U trials that differ.
    """

    class Settings(GeometricSettings):
        name: Literal["umi", "uma", "rma"] = "umi"
        cell_radius_m: float = _declare_by_name(
            {"umi": 100.0, "uma": 250.0, "rma": 2500.0},
            "radius of the disc around the server in metres, half of an inter-site distance; 100 "
            "in umi, 250 in uma, 2500 in rma by default",
            gt=0,
        )
        min_distance_m: float = _declare_by_name(
            {"umi": 10.0, "uma": 35.0, "rma": 35.0},
            "smallest horizontal distance of a device in metres; 10 in umi, else 35 by default",
            gt=0,
        )
        server_height_m: float = _declare_by_name(
            {"umi": 10.0, "uma": 25.0, "rma": 35.0},
            "height of the server's antennas in metres; 10 in umi, 25 in uma, 35 in rma by default",
            gt=0,
        )
        device_height_m: float = Field(1.5, ge=1.5, le=10)
        """height of all devices in metres"""
        indoor_probability: float = _declare_by_name(
            {"umi": 0.8, "uma": 0.8, "rma": 0.5},
            "fraction of devices that are indoors; 0.5 in rma, else 0.8 by default",
            ge=0,
            le=1,
        )
        shadowing: bool = True
        """whether shadow fading is part of the large-scale gain"""
        mobility: Literal["none", "linear"] | TraceMobility = "none"
        """motion of the devices: linear, straight on at speed_kmh with reflection at the edge of
        the cell, so that distance, path loss and shadowing change; none, where speed_kmh affects
        only the fading; or {name: trace, path: positions.csv}, along the paths of a file"""
        in_car: bool = True
        """whether outdoor devices of rma are in cars, with a loss of N(9 dB, 5 dB) (TR 38.901 Table
        7.2-3); without effect in umi and uma"""

        def find_conflicts(self) -> Iterator[str]:
            yield from super().find_conflicts()
            if self.path_loss_db is not None:
                yield (
                    f"path_loss_db: got {self.path_loss_db:g}, but the cell has its own path loss; "
                    "leave it out, or give snr_db for a mean SNR"
                )
            if self.min_distance_m >= self.cell_radius_m:
                yield (
                    f"min_distance_m: got {self.min_distance_m:g}, but cell_radius_m is only "
                    f"{self.cell_radius_m:g}; use a smaller distance"
                )
            if self.mobility == "linear" and self.speed_kmh is None:
                yield "mobility: 'linear' needs speed_kmh; set it, e.g. to 3"
            if self.trace is not None and self.speed_kmh is not None:
                yield f"speed_kmh: got {self.speed_kmh:g}, but a trace has its own; leave it out"
            if self.name != "rma" and not self.in_car:
                yield f"in_car: got false, but {self.name} has no cars; leave it out"

        def list_notes(self, scenario: Any) -> Iterator[str]:
            for key, ranges in VALID_RANGES.items():
                value, (low, high) = getattr(self, key), ranges[self.name]
                if value is not None and not low <= value <= high:
                    wanted = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                    yield (
                        f"channel.{key}: {value:g} is outside the range in which channel "
                        f"'{self.name}' is valid ({wanted}; 3GPP TR 38.901 and TS 38.101-1)"
                    )

        @property
        def trace(self) -> TraceMobility | None:
            """Paths of the devices from a file; None for other mobility."""
            return self.mobility if isinstance(self.mobility, TraceMobility) else None

        @property
        def is_physical(self) -> bool:
            return self.snr_db is None

    has_positions: ClassVar[bool] = True

    settings: Settings
    paths: DevicePaths | None = None

    def prepare(self) -> None:
        settings, bandwidth_hz = self.settings, self.budget.bandwidth_hz
        self._round, self._time_s = 0, torch.zeros_like(bandwidth_hz, dtype=torch.float64)
        # with a trace, trials with the same draws can differ in the clock's time
        own_time = () if settings.trace is None else (torch.arange(len(bandwidth_hz)),)
        self._distinct = (bandwidth_hz, *own_time)
        self._pairs = pairs = Pairs(self.streams, self.devices, *self._distinct)
        self._moves = settings.mobility != "none"
        sionna = self._draw_drop()
        self._velocity = draw_velocities(settings.speed_kmh, pairs)
        frequency = group_frequencies(bandwidth_hz[pairs.rows], settings.subcarrier_groups)
        rays = build_cell_rays(self.links)
        self._waves = waves = PlaneWaves(
            rays, settings.antennas, frequency, pairs, settings.carrier_hz
        )
        self.build_states(pairs, waves.rotation, waves.delay_s, waves.numbers)
        if settings.trace is not None:  # the time of later rounds is not known
            self._rounds = RoundBlocks(self._draw_first_blocks, 1, caches=False)

        at_drop = -self.links.path_loss_db - self.links.penetration_db
        if settings.shadowing:
            at_drop = at_drop + self.links.shadowing_db
        at_drop = db_to_linear(pairs.expand_to_trials(at_drop))
        self._unit = self._compute_unit_gain(at_drop)
        self._fixed_gain = self._scale_gain(at_drop)
        if self._moves:
            self._sionna = sionna
            self._field = ShadowingField(self.links, self._start, self._indoor, pairs)
            ahead = NUMBERS_AT_ONCE // (self._start[..., 0].numel() * FIELD_WAVES)
            ahead = 1 if settings.trace else max(1, min(ROUNDS_PER_BLOCK, ahead))
            self._gains = RoundBlocks(self._compute_gains, ahead, caches=settings.trace is None)

    def _compute_unit_gain(self, gain: Tensor) -> Tensor:
        """Return the gain [S, 1] that counts as one, given those of the drop [S, K]."""
        mean = gain.mean(1, keepdim=True)
        return torch.where(self.budget.is_physical[:, None], torch.ones_like(mean), mean)

    def _draw_positions(self, devices: int) -> tuple[Tensor, Tensor]:
        """Draw positions [U, K, 3] in metres, and which devices are indoors, [U, K] bool."""
        settings = self.settings
        position, indoor = draw_positions(
            Pairs(self.streams, devices, *self._distinct),
            settings.min_distance_m,
            settings.cell_radius_m,
            settings.device_height_m,
            settings.indoor_probability,
        )
        if settings.trace is not None:
            height_m, place = settings.device_height_m, position.device
            self.paths = settings.trace.read_paths(self.devices, height_m, place)
            self.presence_s = self.paths.presence_s
            position[:, : self.devices] = self.paths.compute_positions(self._time_s[None])[0]
        return position, indoor

    def make_interfering(self, interferers: InterfererMap) -> Channel:
        return _InterferingCells(self, interferers)

    def set_time(self, round: int, time_s: np.ndarray) -> None:
        self._round, self._time_s = round, torch.from_numpy(time_s).to(self._time_s)

    def compute_time_s(self, round: Tensor) -> Tensor:
        """Compute the times [R, 1 or U] at the beginning of rounds [R], float64.

        With a trace, that of the present round is the clock's. Rounds of long-term averages are
        spread over the trace.
        """
        if self.paths is None:
            return super().compute_time_s(round)
        time_s = self._time_s + super().compute_time_s(round - self._round)
        # multiples of the golden ratio are even over the trace
        far = self.paths.spread_over_time((round - FAR).double() * 0.61803399 % 1.0)
        return torch.where((round >= FAR)[:, None], far[:, None], time_s)

    def _draw_drop(self) -> SionnaCell:
        """Drop the devices, and return the model of their links for later queries."""
        settings, streams, devices = self.settings, self.streams, self.devices
        position, indoor = self._draw_positions(-(-devices // DEVICES_PER_DROP) * DEVICES_PER_DROP)
        sionna = SionnaCell(settings)
        links = sionna.draw_drop(self._pairs, position.cpu(), indoor.cpu())
        self.links = links.map_tensors(lambda one: one[:, :devices].to(streams.device))
        self._start, self._indoor = position[:, :devices], indoor[:, :devices]
        self.line_of_sight = self._pairs.expand_to_trials(self.links.line_of_sight)
        self.indoor = self._pairs.expand_to_trials(self._indoor)
        return sionna

    def get_gain(self, round: int) -> Tensor:
        return self._gains[round] if self._moves else self._fixed_gain

    def get_positions(self, round: int, trial: int = 0) -> Positions:
        time_s = self.compute_time_s(torch.tensor([round], device=self._start.device))
        place = self._pairs.expand_to_trials(self._get_position(time_s), 1)[0, trial, :, :2]
        path = None if self.paths is None else self.paths.position[..., :2].cpu().numpy()
        return Positions(place.cpu().numpy(), np.zeros((1, 2)), path_m=path)

    def _scale_gain(self, gain: Tensor) -> Tensor:
        """Return the gain [S, K] in the budget's unit and type."""
        return (gain / self._unit).to(self.budget.gain) * self.budget.gain

    def draw_taps(self, index: Tensor, time_s: Tensor) -> Tensor:
        if self._moves:
            return self._waves.compute_moved_taps(self._get_position(time_s) - self._start)
        if self._velocity is None:
            return self._waves.draw_taps(index)
        return self._waves.compute_moved_taps(time_s[:, :, None, None] * self._velocity)

    def _get_position(self, time_s: Tensor) -> Tensor:
        """Return the positions [R, U, K, 3] at times [R, U]."""
        if self.paths is not None:
            return self.paths.compute_positions(time_s)
        if self._velocity is None or not self._moves:
            return self._start.expand(len(time_s), *self._start.shape)
        return reflect_at_circle(self._start, self._velocity, self.settings.cell_radius_m, time_s)

    def _compute_gains(self, first: int, rounds: int) -> Tensor:
        """Compute the large-scale gains [rounds, S, K] at the beginning of each round."""
        round = torch.arange(first, first + rounds, device=self._start.device)
        return self.compute_gains(self.compute_time_s(round))

    def compute_gains(self, time_s: Tensor) -> Tensor:
        """Compute the large-scale gains [R, S, K] at times [R, 1 or U]."""
        position = self._get_position(time_s)
        loss = self._sionna.compute_path_loss_db(position, self._indoor, self.links.clear)
        level = -loss - self.links.penetration_db
        if self.settings.shadowing:
            level = level + self._field(position)
        return self._scale_gain(db_to_linear(self._pairs.expand_to_trials(level, 1)))


class _InterferingCells(Cell):
    """Links of other cells' devices, at the positions of those devices in their own cell."""

    def __init__(self, own: Cell, elsewhere: InterfererMap) -> None:
        self._own, self._elsewhere = own, elsewhere
        budget = elsewhere.gather_budget(own.budget)
        devices = budget.gain.shape[1]
        super().__init__(own.settings, budget, devices, elsewhere.streams, own.hyper)
        self.presence_s = own.presence_s

    def _compute_unit_gain(self, gain: Tensor) -> Tensor:
        return self._own._unit

    def _draw_positions(self, devices: int) -> tuple[Tensor, Tensor]:
        spread = self._own._pairs.expand_to_trials
        position = self._shift_to_server(spread(self._own._start)[None])[0]
        indoor = self._elsewhere.gather_devices(spread(self._own._indoor))[self._pairs.rows]
        filler = -(-devices // position.shape[1])  # drops consist of whole batches
        return position.repeat(1, filler, 1)[:, :devices], indoor.repeat(1, filler)[:, :devices]

    def _get_position(self, time_s: Tensor) -> Tensor:
        own = self._own
        if time_s.shape[1] != own._pairs.count:
            time_s = time_s[:, :1].expand(-1, own._pairs.count)
        there = own._get_position(time_s)
        return self._shift_to_server(own._pairs.expand_to_trials(there, 1))

    def set_time(self, round: int, time_s: np.ndarray) -> None:
        self._own.set_time(round, time_s)

    def compute_time_s(self, round: Tensor) -> Tensor:
        return self._own.compute_time_s(round)

    def _shift_to_server(self, position: Tensor) -> Tensor:
        """Return the others' positions about this server, [R, U, J K, 3].

        `position` [R, S, K, 3] is about their own server.
        """
        seen = position[:, self._elsewhere.row_index]  # [R, S, J, K, 3]
        shift = torch.nn.functional.pad(self._elsewhere.shift_m, (0, 1)).to(seen)
        return (seen + shift[:, :, None]).flatten(2, 3)[:, self._pairs.rows]


class ShadowingField:
    """Shadow fading by position, normal in dB.

    Its correlation over a distance d is exp(-d / d_cor), and it has Sionna's value at the position
    of the drop.

    Parameters
    ----------
    links : CellDrop
        Links of U x K devices.
    start : Tensor, float64 [U, K, 3]
        Their positions in the drop, in metres.
    indoor : Tensor, bool [U, K]
        Devices indoors.
    pairs : Pairs
        Random streams of the pairs.

    Notes
    -----
    Each trial has one field G of unit variance for each of line of sight, no line of sight, and
    indoors, as a sum of cosines. Because exp(-d) is the characteristic function of the planar
    Cauchy distribution, wave vectors have the radius sqrt(1 / (1 - u)^2 - 1) for a uniform u.
    Conditioned on the value g_0 at x_0, the field is

    .. math::

        G(x) + e^{-|x - x_0| / d_{cor}} (g_0 - G(x_0))
    """

    def __init__(self, links: CellDrop, start: Tensor, indoor: Tensor, pairs: Pairs) -> None:
        uniform = pairs.streams.draw_uniform(SHADOWING, 0, (3, FIELD_WAVES, 3))[pairs.rows].double()
        radius = (1.0 / (1.0 - uniform[..., 0]) ** 2 - 1.0).sqrt()
        heading = 2.0 * math.pi * uniform[..., 1]
        vector = torch.stack([radius * heading.cos(), radius * heading.sin()], -1)
        kind = torch.where(indoor, 2, torch.where(links.line_of_sight, 0, 1))
        trial = torch.arange(len(kind), device=kind.device)[:, None]
        self._vector = vector[trial, kind]  # [U, K, waves, 2]
        self._phase = 2.0 * math.pi * uniform[..., 2][trial, kind]
        self._start, self._std = start, links.shadowing_std_db
        self._distance = links.shadowing_distance_m
        self._missing = links.shadowing_db / self._std - self._compute_field(start[None])

    def __call__(self, position: Tensor) -> Tensor:
        """Return the shadowing [R, U, K] in dB at positions [R, U, K, 3]."""
        way = (position - self._start)[..., :2].norm(dim=-1)
        fixed = (-way / self._distance).exp() * self._missing
        return self._std * (self._compute_field(position) + fixed)

    def _compute_field(self, position: Tensor) -> Tensor:
        """Compute G, [R, U, K]."""
        place = position[..., :2] / self._distance[..., None]
        angle = (self._vector * place[..., None, :]).sum(-1) + self._phase
        return angle.cos().sum(-1) * math.sqrt(2.0 / FIELD_WAVES)
