"""Cell of 3GPP: urban micro (umi) or macro (uma), rural macro (rma), office (inh), factory (inf).

Line of sight, path loss, shadowing, indoor loss and rays come from Sionna (`cell_drop`). The
large-scale gain, which is path loss, penetration loss and shadowing, is separate from the fading,
whose mean power is one. Without `snr_db`, budgets are `tx_power_dbm` over thermal noise; with it,
they are the SNR at the trial's mean gain. Antennas are those of the CDL profiles.

A drop is constant during a run: indoor or outdoor, penetration and blockage loss, and angles and
delays of the clusters. Phases of devices that do not move are drawn in each round. With `mobility:
linear`, path loss follows the position, and shadowing is a normal random field over the cell with
the standard's correlation exp(-d / d_cor) (eq. 7.4-5), conditioned on its value in the drop. The
line of sight follows another such field, with the probability at the position. Each device has a
second drop with the other state, whose rays and shadowing it has while its state is changed. With
`mobility: {name: trace}` the same holds along paths from a file, whose first positions are those of
the drop, at the time of the clock.

References
----------
3GPP TR 38.901, "Study on channel model for frequencies from 0.5 to 100 GHz", 7.2 to 7.5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.channels.base import Channel, InterfererMap, Positions, compute_unit_gain
from otafl.channels.cell_drop import (
    DEVICES_PER_DROP,
    SionnaCell,
    build_cell_rays,
    draw_positions,
    reflect_at_circle,
)
from otafl.channels.cell_settings import CellSettings
from otafl.channels.device_paths import DevicePaths
from otafl.channels.fading import FAR, ROUNDS_PER_BLOCK, RoundBlocks
from otafl.channels.hall import draw_hall_positions, reflect_at_walls
from otafl.channels.ofdm import NUMBERS_AT_ONCE, OfdmChannel, Pairs, group_frequencies
from otafl.channels.plane_waves import PlaneWaves, draw_velocities
from otafl.channels.shadowing import FIELD_WAVES, ClearField, ShadowingField
from otafl.core.units import db_to_linear


class Cell(OfdmChannel):
    """Channel of a 3GPP cell; h [S, K, A, B, F] is complex.

    E|h|^2 = 1 over the phases of the rays.

    Attributes
    ----------
    line_of_sight, indoor : Tensor, bool [S, K]
        Devices with a line of sight in the drop, and devices indoors.
    links : CellDrop
        The whole drop, of the U trials that differ.
    """

    class Settings(CellSettings):
        """Section `channel` of a cell."""

    has_positions: ClassVar[bool] = True

    settings: Settings
    paths: DevicePaths | None = None

    def prepare(self) -> None:
        settings = self.settings = self.settings.filled
        bandwidth_hz = self.budget.bandwidth_hz
        self._round, self._time_s = 0, torch.zeros_like(bandwidth_hz, dtype=torch.float64)
        # with a trace, trials with the same draws can differ in the clock's time
        own_time = () if settings.trace is None else (torch.arange(len(bandwidth_hz)),)
        self._distinct = (bandwidth_hz, *own_time)
        self._pairs = pairs = Pairs(self.streams, self.devices, *self._distinct)
        self._moves = settings.mobility != "none"
        sionna = self._draw_drop()
        self._velocity = draw_velocities(settings.speed_kmh, pairs)
        frequency = group_frequencies(bandwidth_hz[pairs.rows], settings.subcarrier_groups)
        spectrum = frequency, pairs, settings.carrier_hz
        rays = [build_cell_rays(drop) for drop in (self.links, *self._others)]
        self._waves = waves = [PlaneWaves(one, settings.antennas, *spectrum) for one in rays]
        rotation = torch.cat([one.rotation for one in waves], -2)
        delay_s = torch.cat([one.delay_s for one in waves], -1)
        self.build_states(pairs, rotation, delay_s, sum(one.numbers for one in waves))
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
            place = self._start, self._indoor
            self._fields = [ShadowingField(d, *place, pairs) for d in (self.links, *self._others)]
            clear, length_m = self.links.clear, sionna.clear_distance_m
            probability = self._look_up(self._start[None], clear)[1][0]
            self._clear = ClearField(clear, probability, self._start, length_m, pairs)
            ahead = NUMBERS_AT_ONCE // (self._start[..., 0].numel() * FIELD_WAVES)
            ahead = 1 if settings.trace else max(1, min(ROUNDS_PER_BLOCK, ahead))
            self._gains = RoundBlocks(self._compute_gains, ahead, caches=settings.trace is None)

    def _compute_unit_gain(self, gain: Tensor) -> Tensor:
        """Return the gain [S, 1] that counts as one, given those of the drop [S, K]."""
        return compute_unit_gain(gain, self.budget)

    def _draw_positions(self, devices: int) -> tuple[Tensor, Tensor]:
        """Draw positions [U, K, 3] in metres, and which devices are indoors, [U, K] bool."""
        settings, pairs = self.settings, Pairs(self.streams, devices, *self._distinct)
        least_m, height_m = settings.min_distance_m, settings.device_height_m
        if settings.cell_radius_m is None:
            assert settings.hall_m is not None
            position = draw_hall_positions(pairs, settings.hall_m, least_m, height_m)
            indoor = torch.ones_like(position[..., 0], dtype=torch.bool)
        else:
            position, indoor = draw_positions(
                pairs, least_m, settings.cell_radius_m, height_m, settings.indoor_probability
            )
        if settings.trace is not None:
            self.paths = settings.trace.read_paths(self.devices, height_m, position.device)
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
        dropped = self._pairs, position.cpu(), indoor.cpu()
        drops = [sionna.draw_drop(*dropped)]
        if self._moves:
            other = ~drops[0].clear | (settings.factory_scenario == "HH")  # which is always clear
            drops.append(sionna.draw_drop(*dropped, other))
        self.links, *self._others = (
            drop.map_tensors(lambda one: one[:, :devices].to(streams.device)) for drop in drops
        )
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
        waves = self._waves[0]
        if not self._moves:
            if self._velocity is None:
                return waves.draw_taps(index)
            return waves.compute_moved_taps(time_s[:, :, None, None] * self._velocity)
        position = self._get_position(time_s)
        changed = (self._find_clear(position) != self.links.clear)[..., None, None]
        taps = [one.compute_moved_taps(position - self._start) for one in self._waves]
        return torch.cat([taps[0] * ~changed, taps[1] * changed], -1)

    def _look_up(self, position: Tensor, clear: Tensor) -> tuple[Tensor, Tensor]:
        """Look up path losses and probabilities of lines of sight, as `SionnaCell.look_up`."""
        return self._sionna.look_up(position, self._indoor, clear, self.links.indoor_distance_m)

    def _find_clear(self, position: Tensor) -> Tensor:
        """Return the lines of sight [R, U, K] at positions [R, U, K, 3]."""
        return self._clear(position, self._look_up(position, self.links.clear)[1])

    def _get_position(self, time_s: Tensor) -> Tensor:
        """Return the positions [R, U, K, 3] at times [R, U]."""
        if self.paths is not None:
            return self.paths.compute_positions(time_s)
        if self._velocity is None or not self._moves:
            return self._start.expand(len(time_s), *self._start.shape)
        if (radius_m := self.settings.cell_radius_m) is None:
            assert self.settings.hall_m is not None
            return reflect_at_walls(self._start, self._velocity, self.settings.hall_m, time_s)
        return reflect_at_circle(self._start, self._velocity, radius_m, time_s)

    def _compute_gains(self, first: int, rounds: int) -> Tensor:
        """Compute the large-scale gains [rounds, S, K] at the beginning of each round."""
        round = torch.arange(first, first + rounds, device=self._start.device)
        return self.compute_gains(self.compute_time_s(round))

    def compute_gains(self, time_s: Tensor) -> Tensor:
        """Compute the large-scale gains [R, S, K] at times [R, 1 or U]."""
        position = self._get_position(time_s)
        clear = self._find_clear(position)
        loss, _ = self._look_up(position, clear)
        level = -loss - self.links.penetration_db
        if self.settings.shadowing:
            same, other = (field(position) for field in self._fields)
            level = level + torch.where(clear == self.links.clear, same, other)
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
