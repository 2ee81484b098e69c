"""A drop of a 3GPP cell by Sionna: line of sight, path loss, penetration loss, large-scale
parameters and rays of TR 38.901 7.4 and 7.5 steps 2 to 9, in float64 on the CPU.

Devices are handed to Sionna 64 at a time, each batch with a seed of its own, so that the first
devices' drop does not depend on how many there are; large-scale parameters are correlated in space
(step 4) within a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from otafl.channels.config_3gpp import CellConfig, RmaConfig
from otafl.channels.ofdm import Pairs
from otafl.channels.plane_waves import RAYS, Rays, unit_vector
from otafl.channels.sionna_rng import keep_global_state, sionna_stream

DEVICES_PER_DROP = 64

SHADOWING = 3
"""Place of shadow fading among Sionna's large-scale parameters."""

SUBCLUSTERS = ((0, 1, 2, 3, 4, 5, 6, 7, 18, 19), (8, 9, 10, 11, 16, 17), (12, 13, 14, 15))
"""TR 38.901 Table 7.5-5: rays of the three sub-clusters of each of the two strongest clusters."""

SUBCLUSTER_DELAYS = (0.0, 1.28, 2.56)
"""Their delays, in cluster delay spreads."""


@dataclass(frozen=True)
class CellDrop:
    """Links of U x K devices, float64. line_of_sight: [U, K] bool; clear: [U, K] bool, up to the
    building that a device may be in. path_loss_db: outdoors. penetration_db: into buildings and
    cars. shadowing_db: gain of shadow fading, with its standard deviation and correlation distance.
    k_factor: of the line of sight, 0 without. Clusters C: power [U, K, C], which sums to one,
    delay_s; angles [U, K, 4, C, 20] radians: azimuth and zenith at the server, azimuth and zenith
    at the device. los_angles [U, K, 4]. strongest: [U, K, 2]. cluster_spread_s: [U, K]."""

    line_of_sight: Tensor
    clear: Tensor
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


def scenario(config: CellConfig) -> Any:
    """Sionna's object of the scenario."""
    with keep_global_state():
        from sionna.phy.channel import tr38901
    place = {"precision": "double", "device": "cpu"}
    antenna = tr38901.PanelArray(1, 1, "single", "V", "omni", config.carrier_hz, **place)
    common = {"ut_array": antenna, "bs_array": antenna, "direction": "uplink", **place}
    if isinstance(config, RmaConfig):
        return tr38901.RMaScenario(config.carrier_hz, **common)
    made = tr38901.UMiScenario if config.name == "umi" else tr38901.UMaScenario  # type: ignore[attr-defined]
    return made(config.carrier_hz, config.o2i_loss, **common)


def set_topology(
    made: Any, config: CellConfig, position: Tensor, indoor: Tensor, los: Tensor | str
) -> None:
    """Places devices at positions [N, n, 3]; the server is at the origin. Sionna keeps what it is
    given and later writes to it, so each tensor is its own."""
    batches = len(position)
    server = position.new_tensor([0.0, 0.0, config.server_height_m]).repeat(batches, 1, 1)
    way, facing = torch.zeros_like(position), torch.zeros_like(position)
    extra = {"in_car": ~indoor & config.in_car} if isinstance(config, RmaConfig) else {}
    server_facing = torch.zeros_like(server)
    made.set_topology(
        position.clone(), server, facing, server_facing, way, indoor.clone(), los, **extra
    )


def drop_cell(config: CellConfig, pairs: Pairs, position: Tensor, indoor: Tensor) -> CellDrop:
    """Links of devices at positions [U, K, 3], indoors [U, K]; K a multiple of 64."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import LSPGenerator, RaysGenerator
    made = scenario(config)
    generators = made, LSPGenerator(made), RaysGenerator(made)
    rows = pairs.rows.tolist()
    batches = []
    for batch in range(position.shape[1] // DEVICES_PER_DROP):
        part = slice(batch * DEVICES_PER_DROP, (batch + 1) * DEVICES_PER_DROP)
        seeds = pairs.streams.seeds(f"cell/{batch}", 0)
        trials = [
            drop_batch(
                config, generators, seeds[row], position[u, None, part], indoor[u, None, part]
            )
            for u, row in enumerate(rows)
        ]
        batches.append(_join(trials, 0))
    return _join(batches, 1)


def _join(parts: list[CellDrop], dim: int) -> CellDrop:
    names = [field.name for field in fields(CellDrop)]
    return CellDrop(**{name: torch.cat([getattr(p, name) for p in parts], dim) for name in names})


def drop_batch(
    config: CellConfig,
    generators: tuple[Any, Any, Any],
    seed: int,
    position: Tensor,
    indoor: Tensor,
) -> CellDrop:
    """One trial's batch [1, 64, 3]. Sionna's links are [1, server, device]; its angles of
    departure are those at the server."""
    made, large_scale, small_scale = generators
    for generator in generators:
        generator.reset_topology()
    with sionna_stream(seed, torch.device("cpu")):
        set_topology(made, config, position, indoor, "random")
        large_scale.topology_updated_callback()
        small_scale.topology_updated_callback()
        lsp = large_scale()
        rays = small_scale(lsp)
    basic = made.basic_pathloss[:, 0]
    los = made.los[:, 0]
    powers = rays.powers[:, 0]
    angles = (rays.aod, rays.zod, rays.aoa, rays.zoa)
    los_angles = (made.los_aod, made.los_zod, made.los_aoa, made.los_zoa)
    return CellDrop(
        line_of_sight=los,
        clear=made.outdoor_los[:, 0],
        path_loss_db=basic,
        penetration_db=lsp.pathloss[:, 0] - basic,
        shadowing_db=10.0 * lsp.sf[:, 0].log10(),
        shadowing_std_db=10.0 * made.lsp_log_std[:, 0, :, SHADOWING],
        shadowing_distance_m=made.get_param("corrDistSF")[:, 0],
        k_factor=torch.where(los, lsp.k_factor[:, 0], 0.0),
        power=powers / powers.sum(-1, keepdim=True),  # without the clusters that step 6 drops
        delay_s=rays.delays[:, 0],
        angles=torch.stack([angle[:, 0] for angle in angles], 2),
        los_angles=torch.stack([angle[:, 0] for angle in los_angles], 2).deg2rad(),
        strongest=rays.strongest_cluster_indices[:, 0],
        cluster_spread_s=made.get_param("cDS")[:, 0] * 1e-9,
    )


def cell_rays(drop: CellDrop) -> Rays:
    """Step 11's rays and paths: the two strongest clusters are split into three sub-clusters each
    (eq. 7.5-27); the line of sight is a path of its own, the last, of zero power where there is
    none."""
    clusters = drop.power.shape[-1]
    rank = torch.zeros_like(drop.power).scatter(
        -1, drop.strongest, drop.power.new_tensor([-2.0, -1.0]).expand_as(drop.strongest)
    )
    order = rank.argsort(dim=-1, stable=True)
    power = drop.power.gather(-1, order)
    delay = drop.delay_s.gather(-1, order)
    place = order[:, :, None, :, None].expand_as(drop.angles)
    angles = drop.angles.gather(3, place)
    regrouped = torch.tensor([ray for group in SUBCLUSTERS for ray in group])
    angles = torch.cat([angles[..., :2, regrouped], angles[..., 2:, :]], 3).flatten(3)
    angles = torch.cat([angles, drop.los_angles[..., None]], -1)

    steps = delay.new_tensor(SUBCLUSTER_DELAYS) * drop.cluster_spread_s[..., None]
    strong = (delay[..., :2, None] + steps[:, :, None]).flatten(2)
    first = delay.amin(-1, keepdim=True)
    direct = drop.k_factor[..., None] / (drop.k_factor[..., None] + 1.0)
    scattered = (power * (1.0 - direct) / RAYS).repeat_interleave(RAYS, -1)
    azimuth, zenith, device_azimuth, device_zenith = angles.unbind(2)
    return Rays(
        power=torch.cat([scattered, direct], -1),
        path=(*(len(group) for group in SUBCLUSTERS * 2), *(RAYS,) * (clusters - 2), 1),
        delay_s=torch.cat([strong, delay[..., 2:], first], -1),
        azimuth=azimuth,
        zenith=zenith,
        travel=unit_vector(device_azimuth, device_zenith),
    )
