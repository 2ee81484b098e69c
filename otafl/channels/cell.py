"""Cells of 3GPP TR 38.901 with dropped devices: urban micro (UMi), urban macro (UMa), rural macro
(RMa), through Sionna (`cell_drop`). Large-scale gain, which is path loss, penetration loss and
shadowing, is apart from the fading, whose mean power is one.

A drop lasts for the run: line of sight, being indoors, penetration loss, angles and delays of the
clusters stay as they are. Standing devices' phases are drawn anew in each round. With `mobility:
linear`, path loss follows the position, and shadowing is a normal field over the cell with the
standard's correlation exp(-d / d_cor) (eq. 7.4-5), conditioned on its value in the drop.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from otafl.channels.cell_drop import (
    DEVICES_PER_DROP,
    CellDrop,
    cell_rays,
    drop_cell,
    scenario,
    set_topology,
)
from otafl.channels.config_3gpp import CellConfig
from otafl.channels.fading import ROUNDS_PER_BLOCK, RoundBlocks
from otafl.channels.ofdm import NUMBERS_AT_ONCE, OfdmStates, Pairs, group_frequencies
from otafl.channels.plane_waves import PlaneWaves, velocities
from otafl.channels.scattering import rounds_apart
from otafl.channels.sionna_rng import sionna_stream
from otafl.channels.topology import drop, reflected
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams

FIELD_WAVES = 128
"""Cosines of a field of shadowing."""


class Cell:
    """h: [S, K, A, B, F] complex, E|h|^2 = 1 over the phases of the rays.

    positions: [S, K, 3] metres in the drop, the server at the origin; distance_m: [S, K] from its
    antennas, in three dimensions; line_of_sight, indoor: [S, K] bool. links: the whole drop, of
    the U trials that differ.
    """

    closed_form: ClassVar[bool] = False

    def __init__(
        self,
        config: CellConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper | None = None,
    ) -> None:
        self._config, self._budget = config, budget
        self._pairs = pairs = Pairs(streams, devices, budget.bandwidth_hz)
        whole = -(-devices // DEVICES_PER_DROP) * DEVICES_PER_DROP
        position, indoor = drop(config, Pairs(streams, whole, budget.bandwidth_hz))
        whole_drop = drop_cell(config, pairs, position.cpu(), indoor.cpu())
        self.links = links = _first_devices(whole_drop, devices, streams.device)
        self._start, self._indoor = position[:, :devices], indoor[:, :devices]
        self.positions = pairs.spread(self._start)
        self.distance_m = (self.positions - self._server()).norm(dim=-1)
        self.line_of_sight = pairs.spread(links.line_of_sight)
        self.indoor = pairs.spread(self._indoor)

        frequency = group_frequencies(budget.bandwidth_hz[pairs.rows], config.subcarrier_groups)
        self._waves = PlaneWaves(
            cell_rays(links), config.antennas, frequency, pairs, config.carrier_hz
        )
        self._velocity = None
        if config.speed_kmh is not None:
            self._velocity = velocities(config.speed_kmh, pairs)
        self.correlation_rounds = rounds_apart(config)
        self._states = OfdmStates(config, budget, pairs, self._draw, self._waves.numbers)

        at_drop = -links.path_loss_db - links.penetration_db
        if config.shadowing:
            at_drop = at_drop + links.shadowing_db
        at_drop = 10.0 ** (pairs.spread(at_drop) / 10.0)
        mean = at_drop.mean(1, keepdim=True)
        self._unit = torch.where(budget.physical[:, None], torch.ones_like(mean), mean)
        self._fixed_gain = self._scaled(at_drop)
        if config.mobility == "linear":
            self._field = ShadowingField(links, self._start, self._indoor, pairs)
            self._moving_loss = scenario(config)
            ahead = NUMBERS_AT_ONCE // (self._start[..., 0].numel() * FIELD_WAVES)
            self._gains = RoundBlocks(self._gains_of, max(1, min(ROUNDS_PER_BLOCK, ahead)))

    def state(self, round: int) -> ChannelState:
        moves = self._config.mobility == "linear"
        return self._states.state(round, self._gains[round] if moves else self._fixed_gain)

    def positions_in(self, round: int) -> Tensor:
        """[S, K, 3] metres, at the beginning of a round."""
        time = torch.tensor([[round * self._config.round_interval_s]], dtype=torch.float64)
        return self._pairs.spread(self._position(time.to(self._start.device))[0])

    def _server(self) -> Tensor:
        return self._start.new_tensor([0.0, 0.0, self._config.server_height_m])

    def _scaled(self, gain: Tensor) -> Tensor:
        """[S, K] in the budget's unit and type."""
        return (gain / self._unit).to(self._budget.gain) * self._budget.gain

    def _draw(self, index: Tensor, time_s: Tensor) -> Tensor:
        """[R, U, K, A, F]."""
        if self._velocity is None:
            return self._waves.fresh(index)
        if self._config.mobility == "linear":
            return self._waves.moved(self._position(time_s) - self._start)
        return self._waves.moved(time_s[:, :, None, None] * self._velocity)

    def _position(self, time_s: Tensor) -> Tensor:
        """[R, U, K, 3] at times [R, U]."""
        if self._velocity is None or self._config.mobility == "none":
            return self._start.expand(len(time_s), *self._start.shape)
        return reflected(self._start, self._velocity, self._config.cell_radius_m, time_s)

    def _gains_of(self, first: int, rounds: int) -> Tensor:
        """[rounds, S, K]: large-scale gains at the beginning of each of the rounds."""
        round = torch.arange(first, first + rounds, dtype=torch.float64, device=self._start.device)
        position = self._position(round[:, None] * self._config.round_interval_s)
        level = -self._path_loss_db(position) - self.links.penetration_db
        if self._config.shadowing:
            level = level + self._field(position)
        return self._scaled(10.0 ** (self._pairs.spread(level, 1) / 10.0))

    def _path_loss_db(self, position: Tensor) -> Tensor:
        """[R, U, K] path loss outdoors at positions [R, U, K, 3] (TR 38.901 Table 7.4.1-1, by
        Sionna). One device a topology: no distances between devices are needed."""
        shape = position.shape[:-1]

        def column(values: Tensor) -> Tensor:
            return values.expand(shape).reshape(-1, 1).cpu()

        clear = column(self.links.clear)[..., None]
        self._moving_loss.reset_topology()
        with sionna_stream(0, torch.device("cpu")):  # UMa's effective height is fixed below 13 m
            places = position.reshape(-1, 1, 3).cpu()
            set_topology(self._moving_loss, self._config, places, column(self._indoor), clear)
        return self._moving_loss.basic_pathloss.view(shape).to(position.device)


class ShadowingField:
    """Shadow fading in dB as a function of the position: normal, with the correlation exp(-d /
    d_cor) over distances d, and with Sionna's value where the device was dropped.

    One field G of unit variance for each trial and each of line of sight, none, and indoors, as a
    sum of cosines: exp(-d) is the characteristic function of the planar Cauchy law, so wave
    vectors have the radius sqrt(1 / (1 - u)^2 - 1) for a uniform u. Conditioning on one value:
    G(x) + exp(-|x - x_0| / d_cor) (g_0 - G(x_0)).
    """

    def __init__(self, links: CellDrop, start: Tensor, indoor: Tensor, pairs: Pairs) -> None:
        uniform = pairs.streams.uniform("shadowing", 0, (3, FIELD_WAVES, 3))[pairs.rows].double()
        radius = (1.0 / (1.0 - uniform[..., 0]) ** 2 - 1.0).sqrt()
        heading = 2.0 * math.pi * uniform[..., 1]
        vector = torch.stack([radius * heading.cos(), radius * heading.sin()], -1)
        kind = torch.where(indoor, 2, torch.where(links.line_of_sight, 0, 1))
        trial = torch.arange(len(kind), device=kind.device)[:, None]
        self._vector = vector[trial, kind]  # [U, K, waves, 2]
        self._phase = 2.0 * math.pi * uniform[..., 2][trial, kind]
        self._start, self._std = start, links.shadowing_std_db
        self._distance = links.shadowing_distance_m
        self._missing = links.shadowing_db / self._std - self._field(start[None])

    def __call__(self, position: Tensor) -> Tensor:
        """[R, U, K] dB at positions [R, U, K, 3]."""
        way = (position - self._start)[..., :2].norm(dim=-1)
        fixed = (-way / self._distance).exp() * self._missing
        return self._std * (self._field(position) + fixed)

    def _field(self, position: Tensor) -> Tensor:
        """[R, U, K]: G."""
        place = position[..., :2] / self._distance[..., None]
        angle = (self._vector * place[..., None, :]).sum(-1) + self._phase
        return angle.cos().sum(-1) * math.sqrt(2.0 / FIELD_WAVES)


def _first_devices(links: CellDrop, devices: int, place: torch.device) -> CellDrop:
    names = [field.name for field in fields(CellDrop)]
    return replace(links, **{name: getattr(links, name)[:, :devices].to(place) for name in names})
