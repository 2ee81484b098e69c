"""Drop of devices in a 3GPP cell, drawn by Sionna.

Sionna draws line of sight, path loss, penetration loss, large-scale parameters and rays of TR
38.901 7.4 and 7.5, steps 2 to 9, in float64 on the CPU.

Sionna gets 64 devices at a time, each batch with its own seed, so that the drop of the first
devices does not depend on their number. Large-scale parameters are correlated in space (step 4)
within a batch.

Positions are uniform in a ring around the server. Devices do not move, or move straight on with
reflection at the edge of the cell; positions are functions of time. A moving device may come nearer
to the server than the ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from otafl.channels.fading import keep_global_state, use_sionna_stream
from otafl.channels.ofdm import Pairs
from otafl.channels.plane_waves import RAYS, Rays, unit_vector
from otafl.core.rng import declare_family, declare_purpose
from otafl.core.units import db_to_linear

DROP = declare_family("cell", __name__)
POSITION = declare_purpose("position", __name__)
SCREENS = declare_purpose("blockage_screens", __name__)

DEVICES_PER_DROP = 64
"""Devices that are given to Sionna at a time."""

SHADOWING = 3
"""Position of shadow fading in Sionna's large-scale parameters."""

CLEAR_DISTANCE_M = {"umi": 50.0, "uma": 50.0, "rma": 60.0, "inh": 10.0}
"""Correlation distances of the line of sight (TR 38.901 Table 7.6.3.1-2)."""

SUBCLUSTERS = ((0, 1, 2, 3, 4, 5, 6, 7, 18, 19), (8, 9, 10, 11, 16, 17), (12, 13, 14, 15))
"""Rays of the three sub-clusters of the two strongest clusters (TR 38.901 Table 7.5-5)."""

SUBCLUSTER_DELAYS = (0.0, 1.28, 2.56)
"""Delays of the sub-clusters, in cluster delay spreads."""


@dataclass(frozen=True)
class CellDrop:
    """Links of U x K devices, float64.

    Parameters
    ----------
    line_of_sight, clear : Tensor, bool [U, K]
        Whether a device has a line of sight, and whether there is one up to its building.
    indoor_distance_m : Tensor [U, K]
        Part of the distance on the ground that is in the device's building.
    path_loss_db, penetration_db : Tensor [U, K]
        Path loss outdoors or in the hall, and loss into buildings and cars and by blockers.
    shadowing_db, shadowing_std_db, shadowing_distance_m : Tensor [U, K]
        Gain of shadow fading, its standard deviation and correlation distance.
    k_factor : Tensor [U, K]
        K-factor of the line of sight, linear; 0 without one.
    power, delay_s : Tensor [U, K, C]
        Powers of the clusters, which sum to one, and delays in seconds.
    angles : Tensor [U, K, 4, C, 20]
        Azimuth and zenith at the server, azimuth and zenith at the device, in radians.
    los_angles : Tensor [U, K, 4]
        The same for the line of sight.
    strongest : Tensor, int64 [U, K, 2]
        The two strongest clusters.
    cluster_spread_s : Tensor [U, K]
        Cluster delay spread in seconds.
    ray_gain : Tensor [U, K, C, 20]
        Power gain of blockage of each ray, over that of the whole link; 1 without blockage.
    los_gain : Tensor [U, K]
        The same for the line of sight.
    """

    line_of_sight: Tensor
    clear: Tensor
    indoor_distance_m: Tensor
    path_loss_db: Tensor
    penetration_db: Tensor
    shadowing_db: Tensor
    shadowing_std_db: Tensor
    shadowing_distance_m: Tensor
    k_factor: Tensor
    power: Tensor
    delay_s: Tensor
    angles: Tensor
    los_angles: Tensor
    strongest: Tensor
    cluster_spread_s: Tensor
    ray_gain: Tensor
    los_gain: Tensor

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> CellDrop:
        """Return the drop with a function applied to every tensor."""
        return CellDrop(*(change(getattr(self, field.name)) for field in fields(self)))


def join_drops(parts: list[CellDrop], dim: int) -> CellDrop:
    """Join drops along a dimension."""
    names = [field.name for field in fields(CellDrop)]
    return CellDrop(*(torch.cat([getattr(part, name) for part in parts], dim) for name in names))


class SionnaCell:
    """Sionna's model of the links of a cell.

    Parameters
    ----------
    settings : Cell.Settings
        Settings of the cell.
    """

    def __init__(self, settings: Any) -> None:
        with keep_global_state():
            from sionna.phy.channel import tr38901
        self._tr38901, self._settings = tr38901, settings.filled
        place = {"precision": "double", "device": "cpu"}
        antenna = tr38901.PanelArray(1, 1, "single", "V", "omni", settings.carrier_hz, **place)
        common = {"ut_array": antenna, "bs_array": antenna, "direction": "uplink", **place}
        common["spec_version"] = settings.spec_version
        if settings.name == "inh":
            common["indoor_scenario"] = settings.indoor_scenario
        elif settings.name == "inf":
            hall = ("factory_scenario", "clutter_density", "clutter_size_m", "clutter_height_m")
            common |= {key.removesuffix("_m"): getattr(self._settings, key) for key in hall}
            common["hall_dimensions"] = self._settings.hall_m
        elif settings.name != "rma":
            common["o2i_model"] = "low"
        kinds = {"umi": "UMi", "uma": "UMa", "rma": "RMa", "inh": "InH", "inf": "InF"}
        make = getattr(tr38901, f"{kinds[settings.name]}Scenario")
        self.scenario = make(settings.carrier_hz, **common)
        self.scenario.set_spatial_consistency_enabled(settings.spatial_consistency)

    def draw_drop(
        self, pairs: Pairs, position: Tensor, indoor: Tensor, clear: Tensor | None = None
    ) -> CellDrop:
        """Draw the links of K devices, a multiple of 64.

        Parameters
        ----------
        pairs : Pairs
            Random streams of U trials.
        position : Tensor, float64 [U, K, 3]
            Positions in metres from the server.
        indoor : Tensor, bool [U, K]
            Devices indoors.
        clear : Tensor, bool [U, K], optional
            Lines of sight up to the buildings, which are random by default.

        Returns
        -------
        CellDrop
            Links of U x K devices.
        """
        rows = pairs.rows.tolist()
        screens = self._draw_screens(pairs)
        batches = []
        for batch in range(position.shape[1] // DEVICES_PER_DROP):
            part = slice(batch * DEVICES_PER_DROP, (batch + 1) * DEVICES_PER_DROP)
            seeds = pairs.streams.draw_seeds(DROP / batch, 0 if clear is None else 1)
            trials = []
            for u, row in enumerate(rows):
                state = None if clear is None else clear[u, None, None, part]
                place = position[u, None, part], indoor[u, None, part]
                trials.append(self.draw_batch(seeds[row], *place, screens[u], state))
            batches.append(join_drops(trials, 0))
        return join_drops(batches, 1)

    def _draw_screens(self, pairs: Pairs) -> Tensor:
        """Draw the centres of the screens of blockage model B, [U, screens, 3] in metres.

        Screens stand uniformly over the hall, or the square around the cell.
        """
        settings = self._settings
        shape = (settings.blockers if settings.blockage == "B" else 0, 2)
        place = pairs.streams.draw_uniform(SCREENS, 0, shape)[pairs.rows].double().cpu() - 0.5
        radius_m = settings.cell_radius_m
        floor_m = settings.hall_m[:2] if radius_m is None else (2.0 * radius_m, 2.0 * radius_m)
        height_m = settings.screen_m[1] / 2.0
        return torch.nn.functional.pad(place * place.new_tensor(floor_m), (0, 1), value=height_m)

    @property
    def clear_distance_m(self) -> float:
        """Correlation distance of the line of sight in metres (Table 7.6.3.1-2)."""
        name, clutter_m = self._settings.name, self._settings.clutter_size_m
        return clutter_m / 2.0 if name == "inf" else CLEAR_DISTANCE_M[name]

    def draw_batch(
        self, seed: int, position: Tensor, indoor: Tensor, screens: Tensor, clear: Any = None
    ) -> CellDrop:
        """Draw one trial's batch [1, 64, 3], with the centres [screens, 3] of blockage model B.

        Sionna's links are [1, server, device], and its angles of departure are those at the server.
        """
        made, settings, models = self.scenario, self._settings, self._tr38901
        made.reset_topology()
        large_scale, blockage = models.LSPGenerator(made), None
        if settings.blockage == "A":
            blockage = models.BlockageModelA(made, settings.self_blocking, settings.blockers)
        elif settings.blockage == "B" and len(screens):
            sizes = screens.new_tensor(settings.screen_m).expand(len(screens), 2).unbind(1)
            blockage = models.BlockageModelB(made, screens, *sizes)
        small_scale = models.RaysGenerator(made, settings.spatial_consistency, blockage)
        with use_sionna_stream(seed, torch.device("cpu")):
            self._place(position, indoor, "random" if clear is None else clear)
            large_scale.topology_updated_callback()
            small_scale.topology_updated_callback()
            lsp = large_scale()
            rays = small_scale(lsp)
        basic = made.basic_pathloss[:, 0]
        los = made.los[:, 0]
        powers, k_factor = rays.powers[:, 0], torch.where(los, lsp.k_factor[:, 0], 0.0)
        ray_gain, los_gain = torch.ones_like(rays.aoa[:, 0]), torch.ones_like(basic)
        if blockage is not None:
            ray_gain = db_to_linear(-rays.blockage_loss_db[:, 0])
            los_gain = db_to_linear(-rays.los_blockage_loss_db[:, 0])
        if rays.blockage_loss_applied_to_powers:
            powers = powers / ray_gain[..., 0]
        power = powers / powers.sum(-1, keepdim=True)  # step 6 removes weak clusters
        scattered = (power * ray_gain.mean(-1)).sum(-1)
        left = (scattered + k_factor * los_gain) / (1.0 + k_factor)
        angles = (rays.aod, rays.zod, rays.aoa, rays.zoa)
        los_angles = (made.los_aod, made.los_zod, made.los_aoa, made.los_zoa)
        return CellDrop(
            line_of_sight=los,
            clear=made.outdoor_los[:, 0],
            indoor_distance_m=made.distance_2d_in[:, 0],
            path_loss_db=basic,
            penetration_db=lsp.pathloss[:, 0] - basic - 10.0 * left.log10(),
            shadowing_db=10.0 * lsp.sf[:, 0].log10(),
            shadowing_std_db=10.0 * made.lsp_log_std[:, 0, :, SHADOWING],
            shadowing_distance_m=made.get_param("corrDistSF")[:, 0],
            k_factor=k_factor,
            power=power,
            delay_s=rays.delays[:, 0],
            angles=torch.stack([angle[:, 0] for angle in angles], 2),
            los_angles=torch.stack([angle[:, 0] for angle in los_angles], 2).deg2rad(),
            strongest=rays.strongest_cluster_indices[:, 0],
            cluster_spread_s=made.get_param("cDS")[:, 0] * 1e-9,
            ray_gain=ray_gain / left[..., None, None],
            los_gain=los_gain / left,
        )

    def look_up(
        self, position: Tensor, indoor: Tensor, clear: Tensor, indoor_distance_m: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Look up path losses outdoors and probabilities of lines of sight at given positions.

        Parameters
        ----------
        position : Tensor, float64 [R, U, K, 3]
            Positions in metres from the server.
        indoor, indoor_distance_m : Tensor [U, K]
            Devices indoors, and distance in their building, as in `CellDrop`.
        clear : Tensor, bool [R, U, K] or [U, K]
            Lines of sight up to the buildings.

        Returns
        -------
        tuple of two Tensor, float64 [R, U, K]
            Path loss in dB (Table 7.4.1-1), and probability of a line of sight up to the building
            (Table 7.4.2-1). Each device is a topology of its own, because no distances between
            devices are needed.
        """
        shape = position.shape[:-1]

        def column(values: Tensor) -> Tensor:
            return values.expand(shape).reshape(-1, 1).cpu()

        place = position.reshape(-1, 1, 3).cpu(), column(indoor), column(clear)[..., None]
        self.scenario.reset_topology()
        with use_sionna_stream(0, torch.device("cpu")):  # UMa's effective height: fixed below 13 m
            self._place(*place, column(indoor_distance_m))
        found = self.scenario.basic_pathloss, self.scenario.los_probability
        loss, probability = (one.view(shape).to(position.device) for one in found)
        return loss, probability

    def _place(
        self, position: Tensor, indoor: Tensor, los: Tensor | str, inside_m: Tensor | None = None
    ) -> None:
        """Place devices at positions [N, n, 3], indoors [N, n]; the server is at the origin.

        Sionna keeps its arguments and later writes to them, so each tensor is a copy. `los` is
        bool, or "random".
        """
        height_m = self._settings.server_height_m
        server = position.new_tensor([0.0, 0.0, height_m]).repeat(len(position), 1, 1)
        way, facing = torch.zeros_like(position), torch.zeros_like(position)
        is_rural = self._settings.name == "rma"
        extra = {"in_car": ~indoor & self._settings.in_car} if is_rural else {}
        if self._settings.hall_m is None:  # in a hall, all of the distance is indoors
            extra["distance_2d_in"] = inside_m
        places = (position.clone(), server, facing, torch.zeros_like(server), way, indoor.clone())
        self.scenario.set_topology(*places, los, **extra)


def build_cell_rays(drop: CellDrop) -> Rays:
    """Build step 11's rays and paths.

    The two strongest clusters are split into three sub-clusters each (eq. 7.5-27). The line of
    sight is the last path, with zero power if there is none.

    Parameters
    ----------
    drop : CellDrop
        Links of U x K devices.

    Returns
    -------
    Rays
        Powers, delays and angles of the rays.
    """
    clusters = drop.power.shape[-1]
    rank = torch.zeros_like(drop.power).scatter(
        -1, drop.strongest, drop.power.new_tensor([-2.0, -1.0]).expand_as(drop.strongest)
    )
    order = rank.argsort(dim=-1, stable=True)
    power = drop.power.gather(-1, order)
    delay = drop.delay_s.gather(-1, order)
    regrouped = torch.tensor([ray for group in SUBCLUSTERS for ray in group])

    def regroup(values: Tensor) -> Tensor:
        """Order the rays of each cluster [..., C, 20] by sub-clusters, [..., 20 C]."""
        place = order[..., None].unflatten(2, (*[1] * (values.dim() - 4), -1)).expand_as(values)
        values = values.gather(-2, place)
        strong = values[..., :2, regrouped]
        return torch.cat([strong, values[..., 2:, :]], -2).flatten(-2)

    angles = torch.cat([regroup(drop.angles), drop.los_angles[..., None]], -1)

    steps = delay.new_tensor(SUBCLUSTER_DELAYS) * drop.cluster_spread_s[..., None]
    strong = (delay[..., :2, None] + steps[:, :, None]).flatten(2)
    first = delay.amin(-1, keepdim=True)
    direct = drop.k_factor[..., None] / (drop.k_factor[..., None] + 1.0)
    scattered = (power * (1.0 - direct) / RAYS).repeat_interleave(RAYS, -1)
    scattered = scattered * regroup(drop.ray_gain)
    direct = direct * drop.los_gain[..., None]
    azimuth, zenith, device_azimuth, device_zenith = angles.unbind(2)
    return Rays(
        power=torch.cat([scattered, direct], -1),
        path=(*(len(group) for group in SUBCLUSTERS * 2), *(RAYS,) * (clusters - 2), 1),
        delay_s=torch.cat([strong, delay[..., 2:], first], -1),
        azimuth=azimuth,
        zenith=zenith,
        travel=unit_vector(device_azimuth, device_zenith),
    )


def draw_positions(
    pairs: Pairs, inner_m: float, outer_m: float, height_m: float, indoor_probability: float
) -> tuple[Tensor, Tensor]:
    """Draw positions uniformly over the ring between two radii, and which devices are indoors.

    Parameters
    ----------
    pairs : Pairs
        Random streams of U x K devices.
    inner_m, outer_m, height_m : float
        Radii of the ring, and height of the devices, in metres.
    indoor_probability : float
        Probability that a device is indoors.

    Returns
    -------
    position : Tensor, float64 [U, K, 3]
        Positions in metres.
    indoor : Tensor, bool [U, K]
        Devices indoors.
    """
    area, turn, door = pairs.draw_static_uniform(POSITION, (3,)).double().unbind(-1)
    inner, outer = inner_m**2, outer_m**2
    distance = (inner + area * (outer - inner)).sqrt()
    angle = 2.0 * math.pi * turn
    height = torch.full_like(distance, height_m)
    position = torch.stack([distance * angle.cos(), distance * angle.sin(), height], -1)
    return position, door < indoor_probability


def reflect_at_circle(position: Tensor, velocity: Tensor, radius: float, time_s: Tensor) -> Tensor:
    """Return the positions of devices that are reflected at a circle.

    After the first chord, all chords are equally long, and each is the previous one rotated by the
    same angle. Before time 0, devices have come the same way back.

    Parameters
    ----------
    position : Tensor, float64 [U, K, 3]
        Positions at time 0 in metres.
    velocity : Tensor, float64 [U, K, 3]
        Horizontal velocities in m/s.
    radius : float
        Radius of the circle in metres.
    time_s : Tensor [R, U]
        Times in seconds.

    Returns
    -------
    Tensor, float64 [R, U, K, 3]
        Positions in metres.
    """
    start, speed = position[..., :2], velocity[..., :2].norm(dim=-1, keepdim=True)
    way = torch.where(time_s < 0, -1.0, 1.0)[:, :, None, None].to(speed)
    heading = velocity[..., :2] / speed.clamp_min(1e-12) * way
    along = (start * heading).sum(-1, keepdim=True)
    to_edge = -along + (along**2 - (start**2).sum(-1, keepdim=True) + radius**2).sqrt()
    edge = start + to_edge * heading
    inward = heading - 2.0 * (heading * edge).sum(-1, keepdim=True) / radius**2 * edge
    chord = (-2.0 * (inward * edge).sum(-1, keepdim=True)).clamp_min(1e-9 * radius)
    # chord = |next hit - hit| for a unit heading: |edge + c inward| = radius
    target = edge + chord * inward
    cross = edge[..., :1] * target[..., 1:] - edge[..., 1:] * target[..., :1]
    turn = torch.atan2(cross, (edge * target).sum(-1, keepdim=True))

    walked = speed * time_s[:, :, None, None].abs()
    beyond = walked - to_edge
    chords = (beyond / chord).floor()
    point = edge + (beyond - chords * chord) * inward
    angle = chords * turn
    cosine, sine = angle.cos(), angle.sin()
    x = cosine * point[..., :1] - sine * point[..., 1:]
    y = sine * point[..., :1] + cosine * point[..., 1:]
    plane = torch.where(beyond < 0, start + walked * heading, torch.cat([x, y], -1))
    return torch.cat([plane, position[..., 2:].expand(*plane.shape[:-1], 1)], -1)
