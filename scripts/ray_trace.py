"""Trace the rays of a place, and write its channels as a trace that otafl replays: `channel: {name:
trace, path: FILE}`.

    python -m venv rays && rays/bin/pip install -r scripts/ray_trace_requirements.txt
    rays/bin/python scripts/ray_trace.py munich
    rays/bin/python scripts/ray_trace.py my_scene.xml --base 10 20 30 --out my_place.npz

Sionna RT must not share an environment with otafl, whose Sionna comes without ray tracing; this
script needs what its requirements file names and nothing of otafl. Without a GPU, Dr.Jit needs
LLVM: where it finds none that it can use, install libllvm19 and set DRJIT_LIBLLVM_PATH to
libLLVM.so.19.1.

The base station transmits from an array and devices receive, which is the uplink by reciprocity.
Devices stand anywhere outdoors within the radius, whether or not a path reaches them, and walk on
by so many metres a round; where a wall is in the way they turn. Rays are reflected by walls and
bent around edges, and do not go through them. Streets and squares are flat: a place is outdoors
where nothing is over the scene's lowest point.

References
----------
Hoydis et al. 2023, "Sionna RT: Differentiable Ray Tracing for Radio Propagation Modeling".
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import drjit as dr
import mitsuba as mi
import numpy as np
import sionna.rt as rt

OPEN_STREET_MAP = (
    "map data (c) OpenStreetMap contributors, ODbL 1.0, openstreetmap.org/copyright; scene by "
    "Sionna RT"
)
BASES = {
    "munich": (8.5, 21.0, 40.0),
    "etoile": (-127.0, 38.0, 53.0),
    "florence": (70.0, -30.0, 48.0),
}
"""Metres. Where the base station is in scenes that come with Sionna, over the roof below it."""

TURNS = 24
"""Headings that a device tries before it stands still for a round."""
STREET_M = 0.5
"""Metres over the lowest point that are still the street."""
MANTISSA_BITS = 9
"""Bits that are kept of a stored response: rounding is 60 dB below it."""


@dataclass(frozen=True)
class Survey:
    """Say what is traced.

    base_m: of the array. antennas: along a horizontal line, half a wavelength apart. radius_m:
    around the base station, of devices and the map. step_m: that a device walks from round to
    round. paths: that are kept of a device, the strongest. rays: that are shot. cell_m: of the map.
    """

    base_m: tuple[float, float, float]
    antennas: int = 8
    devices: int = 96
    rounds: int = 12
    radius_m: float = 200.0
    height_m: float = 1.5
    step_m: float = 1.0
    carrier_hz: float = 3.5e9
    bandwidth_hz: float = 20e6
    paths: int = 16
    max_depth: int = 4
    rays: int = 1_000_000
    cell_m: float = 4.0
    seed: int = 1


@dataclass(frozen=True)
class Rays:
    """Hold the paths of K devices, strongest first; those that are not there are 0.

    a: [K, A, L] complex amplitudes at the carrier. tau_s: [K, L] delays. sight: [K] bool, whether
    one is the line of sight. kept: [K] share of the energy of all paths, 1 where there are none.
    """

    a: np.ndarray
    tau_s: np.ndarray
    sight: np.ndarray
    kept: np.ndarray


def prepare_scene(scene: rt.Scene, survey: Survey) -> rt.Scene:
    """Put the base station with its array in the scene."""
    dr.set_thread_count(1)  # numbers do not depend on the order of sums then
    scene.frequency = survey.carrier_hz
    scene.tx_array, scene.rx_array = _make_array(survey.antennas), _make_array(1)
    scene.add(rt.Transmitter("base", position=list(survey.base_m)))
    return scene


def _make_array(antennas: int) -> rt.PlanarArray:
    """Return isotropic antennas along a line, vertically polarised."""
    return rt.PlanarArray(num_rows=1, num_cols=antennas, pattern="iso", polarization="V")


def trace_rays(scene: rt.Scene, places: np.ndarray, survey: Survey) -> Rays:
    """Trace the paths to devices at places [K, 3], of a scene that is `prepare_scene`."""
    for number, place in enumerate(places):
        scene.add(rt.Receiver(f"device{number}", position=[float(x) for x in place]))
    found = rt.PathSolver()(
        scene,
        max_depth=survey.max_depth,
        samples_per_src=survey.rays,
        synthetic_array=True,
        refraction=False,
        diffraction=True,
        seed=survey.seed,
    )
    a, tau = found.cir(normalize_delays=False, out_type="numpy")
    valid = found.valid.numpy().reshape(tau.shape)[:, 0]
    direct = (found.interactions.numpy().reshape(-1, *tau.shape)[..., 0, :] == 0).all(0)
    for number in range(len(places)):
        scene.remove(f"device{number}")
    a, tau = a[:, 0, 0, :, :, 0], tau[:, 0]
    return _select_strongest(a, tau, valid, direct, survey.paths)


def _select_strongest(
    a: np.ndarray, tau: np.ndarray, valid: np.ndarray, direct: np.ndarray, most: int
) -> Rays:
    """Keep so many paths of a [K, A, L], tau [K, L]; equal ones in the order of their delays, so
    that the order in which they were found does not show."""
    count = max(most, a.shape[2])
    pad = [(0, 0), (0, count - a.shape[2])]
    a = np.pad(np.where(valid[:, None], a, 0.0), [pad[0], *pad])
    tau, valid, direct = (np.pad(x, pad) for x in (tau, valid, direct & valid))
    power = (np.abs(a) ** 2).mean(1)
    order = np.lexsort([tau, -power])[:, :most]
    whole = power.sum(1)
    kept = np.take_along_axis(power, order, 1).sum(1) / np.where(whole > 0, whole, 1.0)
    return Rays(
        np.take_along_axis(a, order[:, None], 2),
        np.take_along_axis(np.where(valid, tau, 0.0), order, 1),
        direct.any(1),
        np.where(whole > 0, kept, 1.0),
    )


class Streets:
    """Say where one is outdoors, of a scene whose streets are flat."""

    def __init__(self, scene: rt.Scene) -> None:
        self._scene, box = scene.mi_scene, scene.mi_scene.bbox()
        self.ground_m, self._top = float(box.min.z), float(box.max.z) + 10.0

    def get_roof_heights(self, places: np.ndarray) -> np.ndarray:
        """Return the height [n] over the ground of what is over places [n, 2 or 3], NaN where there
        is nothing."""
        x, y = places[:, 0].astype(np.float32), places[:, 1].astype(np.float32)
        down = mi.Ray3f(mi.Point3f(x, y, self._top), mi.Vector3f(0.0, 0.0, -1.0))
        hit = self._scene.ray_intersect(down)
        height = np.array(hit.p.z) - self.ground_m
        return np.where(np.array(hit.is_valid()), height, np.nan)

    def find_outdoors(self, places: np.ndarray) -> np.ndarray:
        """Return [n] bool."""
        return self.get_roof_heights(places) < STREET_M


def walk_streets(streets: Streets, survey: Survey) -> np.ndarray:
    """Return where devices are in each round, [R, K, 3] metres: uniform over the streets, then
    straight on until a wall or the edge is in the way."""
    draw = np.random.default_rng(survey.seed)
    centre, count = np.array(survey.base_m[:2]), survey.devices

    def is_free(flat: np.ndarray) -> np.ndarray:
        near = np.hypot(*(flat - centre).T) <= survey.radius_m
        return near & streets.find_outdoors(flat)

    place = np.zeros((0, 2))
    for _ in range(1000):
        if len(place) >= count:
            break
        tried = centre + draw.uniform(-survey.radius_m, survey.radius_m, (4 * count, 2))
        place = np.concatenate([place, tried[is_free(tried)]])
    else:
        raise SystemExit("there is no street around the base station; --base and --radius choose")
    place, heading = place[:count], draw.uniform(0.0, 2.0 * math.pi, count)
    rounds = [place]
    for _ in range(survey.rounds - 1):
        stuck = np.ones(count, dtype=bool)
        for _ in range(TURNS):
            step = survey.step_m * np.stack([np.cos(heading), np.sin(heading)], 1)
            goes = stuck & is_free(place + step)
            place = place + np.where(goes[:, None], step, 0.0)
            stuck = stuck & ~goes
            heading = np.where(stuck, draw.uniform(0.0, 2.0 * math.pi, count), heading)
        rounds.append(place)
    flat = np.stack(rounds)
    height = np.full((*flat.shape[:2], 1), streets.ground_m + survey.height_m)
    return np.concatenate([flat, height], 2)


def compute_coverage(
    scene: rt.Scene, streets: Streets, survey: Survey
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the map's x [X] and y [Y] in metres, the path gain in dB [Y, X] of one antenna, NaN
    where no path leads or a roof is, and the roofs' heights [Y, X]."""
    side, (x, y, _) = 2.0 * survey.radius_m, survey.base_m
    scene.tx_array = _make_array(1)  # several would send a beam
    found = rt.RadioMapSolver()(
        scene,
        center=mi.Point3f(x, y, streets.ground_m + survey.height_m),
        orientation=mi.Point3f(0.0, 0.0, 0.0),
        size=mi.Point2f(side, side),
        cell_size=mi.Point2f(survey.cell_m, survey.cell_m),
        samples_per_tx=4 * survey.rays,
        max_depth=survey.max_depth,
        refraction=False,
        diffraction=True,
        seed=survey.seed,
    )
    centre = np.array(found.cell_centers)
    gain = np.array(found.path_gain)[0]
    height = streets.get_roof_heights(centre.reshape(-1, 3)).reshape(gain.shape)
    seen = (gain > 0) & (height < STREET_M)
    level = np.where(seen, 10.0 * np.log10(np.where(seen, gain, 1.0)), np.nan)
    return centre[0, :, 0], centre[:, 0, 1], np.round(level, 1), np.round(height, 1)


def trace_scene(scene: rt.Scene, survey: Survey) -> dict[str, np.ndarray]:
    """Return the arrays of a trace by their names."""
    prepare_scene(scene, survey)
    streets = Streets(scene)
    places = walk_streets(streets, survey)
    rounds = [trace_rays(scene, one, survey) for one in places]
    a, tau = (np.stack([getattr(one, name) for one in rounds]) for name in ("a", "tau_s"))
    there = (np.abs(a) > 0).any(2)
    # a device is told to send early: its first path arrives at 0
    first = np.where(there, tau, np.inf).min(2, keepdims=True)
    sight = np.stack([one.sight for one in rounds])
    tau = np.where(there, tau - np.where(np.isfinite(first), first, 0.0), 0.0)
    x, y, level, height = compute_coverage(scene, streets, survey)
    return {
        "a": _round_values(a.real) + 1j * _round_values(a.imag),
        "tau_s": np.round(tau, 10).astype(np.float32),
        "line_of_sight": sight.astype("i1"),
        "kept_energy": _round_values(np.stack([one.kept for one in rounds])),
        "position_m": np.round(places, 2).astype(np.float32),
        "base_m": np.array(survey.base_m, np.float32),
        "x_m": x.astype(np.float32),
        "y_m": y.astype(np.float32),
        "coverage_db": level.astype(np.float32),
        "roof_m": height.astype(np.float32),
    }


def _round_values(values: np.ndarray) -> np.ndarray:
    """Return single precision with few bits of the mantissa, which packs well."""
    drop = 23 - MANTISSA_BITS
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + (1 << (drop - 1))) & ~np.uint32((1 << drop) - 1)).view(np.float32)


def write(
    path: Path,
    arrays: dict[str, np.ndarray],
    survey: Survey,
    attribution: str,
) -> None:
    """Write a trace, the same bytes from the same numbers."""
    made_by = f"scripts/ray_trace.py, Sionna RT {rt.__version__}"
    names = ("carrier_hz", "bandwidth_hz", "step_m", "radius_m", "max_depth", "rays", "seed")
    stated = {name: getattr(survey, name) for name in names}
    np.savez_compressed(path, attribution=attribution, made_by=made_by, **stated, **arrays)


def main() -> None:
    defaults = Survey((0.0, 0.0, 0.0))
    first = " ".join((__doc__ or "").split("\n\n")[0].split())
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("scene", help=f"{', '.join(BASES)}, another of Sionna's, or an XML file")
    parser.add_argument("--out", type=Path, help="file to write; else SCENE.npz")
    parser.add_argument("--base", type=float, nargs=3, metavar=("X", "Y", "Z"), help="metres")
    parser.add_argument("--attribution", default="", help="whom the scene's data are owed to")
    for name in (
        *("antennas", "devices", "rounds", "radius_m", "height_m", "step_m", "carrier_hz"),
        *("bandwidth_hz", "paths", "max_depth", "rays", "cell_m", "seed"),
    ):
        value = getattr(defaults, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = vars(parser.parse_args())
    name, out, base = (args.pop(key) for key in ("scene", "out", "base"))
    attribution = args.pop("attribution") or (OPEN_STREET_MAP if name in BASES else "")
    if base is None and name not in BASES:
        parser.error(f"--base X Y Z is needed for {name}")
    known = getattr(rt.scene, name, None)
    if known is None and not Path(name).is_file():
        parser.error(f"{name}: neither a scene of Sionna nor a file")
    survey = Survey(tuple(base or BASES[name]), **args)
    path = out or Path(f"{Path(name).stem}.npz")
    write(path, trace_scene(rt.load_scene(known or name), survey), survey, attribution)
    print(f"{path}: {path.stat().st_size / 2**10:.0f} KiB")


if __name__ == "__main__":
    main()
