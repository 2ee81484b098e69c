"""Settings of the cells of TR 38.901, their defaults, and the ranges of their models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat

from otafl.channels.base import note_range
from otafl.channels.device_paths import TraceMobility
from otafl.channels.plane_waves import GeometricSettings
from otafl.core.problems import Problem, make_problem
from otafl.core.suggestions import format_suggestion

OUTDOORS, INDOORS = ("umi", "uma", "rma"), ("inh", "inf")

Size = tuple[PositiveFloat, PositiveFloat, PositiveFloat]

FILLED_KEYS = ("hall_m", "clutter_density", "clutter_size_m", "clutter_height_m", "server_height_m")
FILLED: dict[str, tuple[Any, ...]] = {
    "umi": (None, None, None, None, 10.0),
    "uma": (None, None, None, None, 25.0),
    "rma": (None, None, None, None, 35.0),
    "inh": ((120.0, 50.0, 3.0), None, None, None, 3.0),
    "SL": ((120.0, 60.0, 10.0), 0.2, 10.0, 2.0, 1.5),
    "DL": ((300.0, 150.0, 10.0), 0.6, 2.0, 6.0, 1.5),
    "SH": ((300.0, 150.0, 10.0), 0.2, 10.0, 2.0, 8.0),
    "DH": ((120.0, 60.0, 10.0), 0.6, 2.0, 6.0, 8.0),
    "HH": ((300.0, 150.0, 10.0), 0.0, 1.0, 0.0, 8.0),
}
"""Defaults of each cell and kind of factory (Tables 7.2-1 to 7.2-3, 7.8-1, and 7.8-7 for factories;
HH by convention)."""

POWER_DBM, SPEED_KMH, CARRIER_HZ = (-40, 31), (0, 500), (5e8, 1e11)
DISTANCE_M: dict[str, tuple[float, float]] = {
    **dict.fromkeys(OUTDOORS, (10, 5_000)),
    "inh": (1, 150),
    "inf": (1, 600),
}
VALID_RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "tx_power_dbm": dict.fromkeys(OUTDOORS + INDOORS, POWER_DBM),
    "speed_kmh": dict.fromkeys(OUTDOORS + INDOORS, SPEED_KMH),
    "carrier_hz": dict.fromkeys(OUTDOORS + INDOORS, CARRIER_HZ) | {"rma": (5e8, 3e10)},
    "min_distance_m": DISTANCE_M,
    "cell_radius_m": DISTANCE_M,
    "server_height_m": {"umi": (10, 10), "uma": (25, 25), "rma": (10, 150), "inh": (3, 3)},
    "device_height_m": {"inh": (1, 1.5)},
}
"""Key -> cell -> range in which its model was fitted (TR 38.901, Table 7.4.1-1 and its notes, and
Table 7.2-2), or that devices of a cellular network have: power of any class, and floor, of TS
38.101-1."""

SOURCE = "3GPP TR 38.901 and TS 38.101-1"
"""Where the ranges are from."""

SPARSE, DENSE = (0.0, 0.4), (0.4, 1.0)
CEILING_M, TOP_M = (5, 25), (0, 10)
"""Densities of sparse and dense clutter, and heights of halls and of clutter (Table 7.2-4)."""

MOTIONS = ("none", "linear")

OWNERS = {"indoor_scenario": ("inh",), "factory_scenario": ("inf",), "hall_m": INDOORS}
OWNERS |= dict.fromkeys(FILLED_KEYS[1:4], ("inf",))
"""Keys of some cells only."""


def _look_up(table: Mapping[str, Any], other: Any = None) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that finds a default by the name of the cell."""
    return lambda given: table.get(given["name"], other)


def _check_motion(given: Any) -> Any:
    """Refuse a text that is no motion, or a trace without its keys."""
    if isinstance(given, str) and given not in MOTIONS:
        needs = "must be 'none', 'linear' or {name: trace, path: positions.csv}"
        raise ValueError(f"got '{given}'; {needs}{format_suggestion(given, MOTIONS)}")
    return given


class CellSettings(GeometricSettings):
    """Settings of a cell."""

    name: Literal["umi", "uma", "rma", "inh", "inf"] = "umi"
    spec_version: Annotated[Literal["16.1", "19.2"], BeforeValidator(str)] = "19.2"
    """version of TR 38.901 whose tables are used"""
    indoor_scenario: Literal["open", "mixed"] | None = Field(
        default_factory=_look_up({"inh": "open"})
    )
    """office of inh, by which lines of sight are drawn: open or mixed; open by default"""
    factory_scenario: Literal["SL", "DL", "SH", "DH", "HH"] | None = Field(
        default_factory=_look_up({"inf": "SH"})
    )
    """factory of inf: sparse (S) or dense (D) clutter with a low (L) or high (H) server, or server
    and devices above it (HH); SH by default"""
    hall_m: Size | None = None
    """length, width and height of the hall of inh and inf in metres, with the server in its centre;
    by default 120 x 50 x 3 in inh, and 120 x 60 x 10 or 300 x 150 x 10 in inf"""
    clutter_density: float | None = Field(None, ge=0, lt=1)
    """share of the floor of inf that clutter covers; by default 0.2 if sparse, 0.6 if dense"""
    clutter_size_m: float | None = Field(None, gt=0)
    """typical size of the clutter of inf in metres; by default 10 if sparse, 2 if dense"""
    clutter_height_m: float | None = Field(None, ge=0)
    """effective height of the clutter of inf in metres; by default 2 if sparse, 6 if dense"""
    cell_radius_m: float | None = Field(
        default_factory=_look_up({"umi": 100.0, "uma": 250.0, "rma": 2500.0}), gt=0
    )
    """radius of the disc around the server in metres, half of an inter-site distance; 100 in umi,
    250 in uma, 2500 in rma by default. Devices of inh and inf fill the hall if it is not given"""
    min_distance_m: float = Field(
        default_factory=_look_up({"umi": 10.0, "uma": 35.0, "rma": 35.0}, 1.0), gt=0
    )
    """smallest horizontal distance of a device in metres; by default 10 in umi, 35 in uma and rma,
    1 in inh and inf"""
    server_height_m: float | None = Field(
        default_factory=_look_up({name: row[-1] for name, row in FILLED.items()}), gt=0
    )
    """height of the server's antennas in metres; by default 10 in umi, 25 in uma, 35 in rma, 3 in
    inh, and in inf 1.5 if low, 8 if high"""
    device_height_m: float = Field(default_factory=_look_up({"inh": 1.0}, 1.5), gt=0)
    """height of all devices in metres; 1 in inh, else 1.5 by default"""
    indoor_probability: float = Field(
        default_factory=_look_up({"umi": 0.8, "uma": 0.8, "rma": 0.5}, 1.0), ge=0, le=1
    )
    """fraction of devices that are indoors; by default 0.8 in umi and uma, 0.5 in rma"""
    shadowing: bool = True
    """whether shadow fading is part of the large-scale gain"""
    mobility: Annotated[
        Literal["none", "linear"] | TraceMobility, BeforeValidator(_check_motion)
    ] = "none"
    """motion of the devices: linear, straight on at speed_kmh with reflection at the edge of the
    cell, so that distance, path loss and shadowing change; none, where speed_kmh affects only the
    fading; or {name: trace, path: positions.csv}, along the paths of a file"""
    in_car: bool = True
    """whether outdoor devices of rma are in cars, with a loss of N(9 dB, 5 dB) (TR 38.901 Table
    7.2-3); without effect in other cells"""
    spatial_consistency: bool = False
    """whether lines of sight, clusters and losses into buildings of devices near each other are
    correlated (TR 38.901, 7.6.3); large-scale parameters always are"""
    blockage: Literal["none", "A", "B"] = "none"
    """obstacles, which lower the mean gain (TR 38.901, 7.6.4): angular regions around each device,
    one of them its user (A), screens on the floor (B), or none"""
    blockers: int = Field(4, ge=0, le=1000)
    """number of a device's angular regions besides its user, or of screens"""
    self_blocking: Literal["portrait", "landscape"] = "portrait"
    """orientation of the devices of blockage A in their users' hands"""
    screen_m: tuple[PositiveFloat, PositiveFloat] = (0.3, 1.7)
    """width and height in metres of a screen of blockage B; a person by default"""

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.path_loss_db is not None:
            yield (
                f"path_loss_db: got {self.path_loss_db:g}, but the cell has its own path loss; "
                "leave it out, or give snr_db for a mean SNR"
            )
        radius_m = self.cell_radius_m
        if radius_m is not None and self.min_distance_m >= radius_m:
            yield (
                f"min_distance_m: got {self.min_distance_m:g}, but cell_radius_m is only "
                f"{radius_m:g}; use a smaller distance"
            )
        if self.mobility == "linear" and self.speed_kmh is None:
            yield "mobility: 'linear' needs speed_kmh; set it, e.g. to 3"
        if self.trace is not None and self.speed_kmh is not None:
            yield f"speed_kmh: got {self.speed_kmh:g}, but a trace has its own; leave it out"
        if self.name != "rma" and not self.in_car:
            yield f"in_car: got false, but {self.name} has no cars; leave it out"
        for key, owners in OWNERS.items():
            if (given := getattr(self, key)) is not None and self.name not in owners:
                yield f"{key}: got {given}, but only {' and '.join(owners)} use it; leave it out"
        if self.name in OUTDOORS and not 1.5 <= self.device_height_m <= 10.0:
            yield f"device_height_m: got {self.device_height_m:g}; must be from 1.5 to 10 outdoors"
        if self.name in OUTDOORS and radius_m is None:
            yield f"cell_radius_m: got null, but {self.name} has no hall to fill; leave it out"
        if self.name in INDOORS:
            yield from self.filled._find_hall_conflicts()

    def _find_hall_conflicts(self) -> Iterator[str]:
        """Yield the conflicts of a hall with its server, its devices and its blockage."""
        length_m, width_m, height_m = self.hall_m or (0.0, 0.0, 0.0)
        for key in ("server_height_m", "device_height_m"):
            if getattr(self, key) > height_m:
                yield f"{key}: got {getattr(self, key):g}; must be at most hall_m's {height_m:g}"
        most_m = min(length_m, width_m) / 4.0
        if self.cell_radius_m is None and self.min_distance_m > most_m:
            least_m = self.min_distance_m
            yield f"min_distance_m: got {least_m:g}; must be at most {most_m:g} in this hall"
        if self.indoor_probability < 1.0:
            share = self.indoor_probability
            yield f"indoor_probability: got {share:g}, but all devices are indoors; leave it out"
        if self.name == "inf" and self.blockage == "A":
            yield "blockage: got A, which TR 38.901 does not have for factories; use B"

    def check(self, scenario: Any) -> Iterator[Problem]:
        """Return conflicts with several servers."""
        topology = scenario.topology
        if topology.name in ("star", "graph"):
            return
        if self.blockage == "B":
            text = "got B, whose screens stand around one server; use topology: star, or A"
            yield make_problem(text, "channel.blockage", "topology")
        if self.cell_radius_m is None and not getattr(topology, "places_m", ()):
            text = f"several servers in {self.name} need it, as halls have one; set it, e.g. to 10"
            places = ", or give topology.places_m" if topology.name == "cell_free" else ""
            yield make_problem(text + places, "channel.cell_radius_m", "topology")

    def list_notes(self, scenario: Any) -> Iterator[str]:
        for key, value, valid in self.filled._list_ranges():
            if value is not None:
                yield from note_range(self.name, key, value, [valid], SOURCE)

    def _list_ranges(self) -> Iterator[tuple[str, float | None, tuple[float, float]]]:
        """Yield numbers and the ranges in which the model is valid."""
        for key, ranges in VALID_RANGES.items():
            if self.name in ranges:
                yield key, getattr(self, key), ranges[self.name]
        if self.hall_m is not None and self.cell_radius_m is None:
            yield "hall_m", math.hypot(*self.hall_m[:2]) / 2.0, (0, DISTANCE_M[self.name][1])
        kind, top_m = self.factory_scenario, self.clutter_height_m
        if kind is None or top_m is None or self.hall_m is None:
            return
        below, above = (0.0, top_m), (top_m, self.hall_m[2])
        yield "hall_m", self.hall_m[2], CEILING_M
        yield "clutter_height_m", top_m, TOP_M
        yield "server_height_m", self.server_height_m, above if kind[1] == "H" else below
        yield "device_height_m", self.device_height_m, above if kind == "HH" else below
        if kind != "HH":
            yield "clutter_density", self.clutter_density, SPARSE if kind[0] == "S" else DENSE

    @property
    def trace(self) -> TraceMobility | None:
        """Paths of the devices from a file; None for other mobility."""
        return self.mobility if isinstance(self.mobility, TraceMobility) else None

    @property
    def is_physical(self) -> bool:
        return self.snr_db is None

    @property
    def filled(self) -> Self:
        """The settings with the defaults that depend on the kind of factory."""
        kind = self.factory_scenario or self.name
        row = zip(FILLED_KEYS, FILLED[kind], strict=True)
        absent = {key: value for key, value in row if getattr(self, key) is None}
        return self.model_copy(update=absent)
