"""Cell-free network: one server with distributed access points and central combining.

Each of L access points has the channel's antennas, and a device's large-scale gain to each depends
on their distance. The server knows the signals of all points. The receiver therefore combines L A
antennas as those of one array, each with its own noise. Points at one place are that array.

On channels of a cell (umi, uma, rma) each point has its own line of sight, path loss and rays. On
other channels the gain is (d^2 + height^2)^(-exponent / 2), divided by its mean in the trial.

References
----------
Ngo, Ashikhmin, Yang, Larsson, Marzetta 2017, "Cell-Free Massive MIMO Versus Small Cells", IEEE
Transactions on Wireless Communications 16(3).
Sifaou, Li 2022, "Over-the-Air Federated Learning Over Scalable Cell-free Massive MIMO", arXiv
2212.06482.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, InterfererMap, Positions
from otafl.core import registry
from otafl.core.contracts import ChannelState, Paths
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import declare_purpose
from otafl.core.settings import declare_stackable
from otafl.topology.base import Topology

POINTS = declare_purpose("access_points", __name__)
PLACES = declare_purpose("cell_free_devices", __name__)

Place = tuple[float, float]


class CellFree(Topology):
    """Topology with one server and L access points."""

    class Settings(Topology.Settings):
        small: ClassVar[Mapping[str, Any]] = {"points": 2}

        name: Literal["cell_free"] = "cell_free"
        points: int = Field(16, ge=1, le=1000)
        """number of access points L, each with the channel's antennas"""
        places_m: tuple[Place, ...] = ()
        """positions [x, y] of the access points in metres from the centre; if not given, uniform in
        the disc, drawn for each trial"""
        radius_m: float | None = Field(None, gt=0)
        """radius in metres of the disc that contains the devices, 100 if not given; on a channel
        with cells it is cell_radius_m"""
        exponent: float = declare_stackable(3.67, ge=0)
        """path-loss exponent, on channels without positions"""
        height_m: float = declare_stackable(10.0, gt=0)
        """height in metres of the points above the devices, on such channels"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            if self.places_m and len(self.places_m) != self.points:
                text = f"got {len(self.places_m)} places for topology.points {self.points}"
                yield make_problem(
                    f"{text}; give one for each", "topology.places_m", "topology.points"
                )
            channel = scenario.channel
            kind = registry.load_component("channel", channel.name)
            if kind.has_positions and self.radius_m is not None:
                text = (
                    f"got {self.radius_m:g}, but the devices of '{channel.name}' are within its "
                    "cell_radius_m; leave it out"
                )
                yield make_problem(text, "topology.radius_m", "channel")
            if getattr(channel, "ris", None) is not None:
                text = "a surface needs all antennas of the server at one place"
                yield make_problem(f"{text}; use topology: star", "channel.ris", "topology")

            if not kind.has_positions and getattr(channel, "antennas", None) is None:
                text = (
                    f"'{channel.name}' has its own antennas at one place; use rayleigh, tdl-a or "
                    "umi"
                )
                yield make_problem(text, "channel", "topology")

        def make_server_scenario(self, scenario: Any) -> Any:
            """Return the scenario whose channel has the antennas of all points.

            On channels with positions, the points have antennas of their own, and the scenario is
            unchanged.
            """
            channel = scenario.channel
            if registry.load_component("channel", channel.name).has_positions:
                return scenario
            all_of_them = {"antennas": self.points * channel.antennas}
            return scenario.model_copy(update={"channel": channel.model_copy(update=all_of_them)})

    def get_uplink_channel(self, channel: Channel) -> Channel:
        settings, streams = self.settings, self.rows.streams
        radius = settings.radius_m or getattr(channel.settings, "cell_radius_m", 100.0)
        if settings.places_m:
            place = torch.tensor(settings.places_m, dtype=torch.float64, device=streams.device)
            place = place.expand(streams.num_trials, -1, -1)
        else:
            place = _map_to_disc(streams.draw_uniform(POINTS, 0, (settings.points, 2)), radius)
        if channel.has_positions:
            rows = torch.arange(streams.num_trials, device=streams.device)[:, None]
            sights = [
                InterfererMap(rows, -place[:, index, None], 1.0, self.rows.get_link_streams(index))
                for index in range(settings.points)
            ]
            each = [channel.make_interfering(one) for one in sights]
            return AccessPoints(channel, each, None, place)
        pair = torch.arange(streams.num_trials * channel.devices, device=streams.device)
        trial, device = pair // channel.devices, pair % channel.devices
        drawn = streams.draw_device_uniform(PLACES, 0, trial, device, (2,))
        there = _map_to_disc(drawn.unflatten(0, (-1, channel.devices)), radius)
        apart = (there[:, :, None] - place[:, None]).square().sum(3)
        height, exponent = (self.hyper[key].double() for key in ("height_m", "exponent"))
        distance = (apart + height[:, None, None].square()).sqrt()
        gain = distance.pow(-exponent[:, None, None])
        gain = gain / gain.mean((1, 2), keepdim=True)
        return AccessPoints(channel, [channel], gain, place, there)


class AccessPoints(Channel):
    """Channel h [S, K, L A, B, F] to L access points, with their mean large-scale gain.

    Parameters
    ----------
    own : Channel
        Channel of the scenario.
    each : list of Channel
        Channels to the points, or one with all their antennas.
    gain : Tensor, [S, K, L], optional
        Relative gains of that one channel; None if channels have their own gains.
    place : Tensor, [S, L, 2]
        Positions of the points in metres.
    devices_at : Tensor, [S, K, 2], optional
        Positions of the devices in metres.
    """

    def __init__(
        self,
        own: Channel,
        each: list[Channel],
        gain: Tensor | None,
        place: Tensor,
        devices_at: Tensor | None = None,
    ) -> None:
        self._own, self._each, self._place, self._devices_at = own, each, place, devices_at
        self._gain = gain
        super().__init__(own.settings, own.budget, own.devices, own.streams, own.hyper)

    def prepare(self) -> None:
        self.correlation_rounds = self._own.correlation_rounds
        self.presence_s = self._own.presence_s

    def set_time(self, round: int, time_s: np.ndarray) -> None:
        self._own.set_time(round, time_s)

    def get_state(self, round: int) -> ChannelState:
        return self._join_states([one.get_state(round) for one in self._each])

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        return self._join_states([one.get_state_of_devices(round, devices) for one in self._each])

    def _join_states(self, states: list[ChannelState]) -> ChannelState:
        """Join the channels to the points to one channel."""
        first = states[0]
        if self._gain is None:
            gain = torch.stack([one.gain for one in states], 2)
        else:
            gain = first.gain[:, :, None] * self._gain.to(first.gain)
        mean = gain.mean(2)
        root = (gain / mean[:, :, None]).sqrt()

        def weight_antennas(parts: list[Tensor]) -> Tensor:
            h = torch.cat(parts, 2)
            each = root.repeat_interleave(h.shape[2] // root.shape[2], 2)
            return h * each[..., None, None]

        def draw_later_blocks(blocks: int) -> Tensor:
            return weight_antennas(
                [one.h if one.blocks_fn is None else one.blocks_fn(blocks) for one in states]
            )

        def paths(blocks: int) -> Paths:
            each = [one.paths_fn(blocks) for one in states if one.paths_fn is not None]
            length = sum(one.a.shape[4] for one in each)
            before, parts = 0, []
            for one in each:  # the paths to other points do not reach these antennas
                after = length - before - one.a.shape[4]
                parts.append(torch.nn.functional.pad(one.a, (before, after)))
                before += one.a.shape[4]
            return Paths(weight_antennas(parts), torch.cat([one.delay_s for one in each], 3))

        return ChannelState(
            h=weight_antennas([one.h for one in states]),
            gain=mean,
            block_symbols=first.block_symbols,
            blocks_fn=None if first.blocks_fn is None else draw_later_blocks,
            paths_fn=None if first.paths_fn is None else paths,
        )

    def get_positions(self, round: int, trial: int = 0) -> Positions | None:
        points = self._place[trial].cpu().numpy()
        if self._devices_at is not None:
            return Positions(self._devices_at[trial].cpu().numpy(), points)
        own = self._own.get_positions(round, trial)
        return None if own is None else replace(own, base_m=points)


def _map_to_disc(uniform: Tensor, radius_m: float) -> Tensor:
    """Map uniform numbers [..., 2] to uniform positions [..., 2] in a disc, float64."""
    distance, turn = uniform.double().unbind(-1)
    distance, angle = radius_m * distance.sqrt(), 2.0 * math.pi * turn
    return torch.stack([distance * angle.cos(), distance * angle.sin()], -1)
