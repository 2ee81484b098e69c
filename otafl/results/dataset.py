"""Results: one table of variables, one xarray schema, atomic files, combining and opening.

A run is stored in parts. Each part holds the points of a sweep that ran in one stack, with dims
(point, trial, round[, device]). Opened, a result has the sweep's axes in place of `point`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.core.errors import UserError
from otafl.core.files import written
from otafl.devices.activities import ACTIVITIES, CAUSES
from otafl.results.variables import VARIABLES
from otafl.scenario import Point, Scenario, about, axes_of, same

if TYPE_CHECKING:
    from otafl.engine.trained import Trained
    from otafl.scenario import Point, Scenario


@dataclass(frozen=True)
class Record:
    """What the engine measured for the points of one stack.

    rounds: [R] rounds at which records were taken. variables: name of `VARIABLES` -> float
    [points, trials, R], [points, trials, R, devices] or [points, trials], as its dims say.
    complete: whether every round was run. link: name of `LINK_DIMS`, with "/<group>" where there
    are several -> [points, trials, rounds, ...], of every round from the first, or None. models:
    of all points and trials at the end, with `output.save_models`.
    """

    rounds: list[int]
    variables: dict[str, np.ndarray]
    complete: bool = True
    link: dict[str, np.ndarray] | None = None
    models: Trained | None = None


LINK_DIMS: dict[str, tuple[str, ...]] = {
    "h": ("segment", "device"),
    "h_hat": ("segment", "device"),
    "weight": ("device",),
    "eta": ("segment",),
    "noise": ("segment",),
    "p": ("segment", "device"),
    "c": ("segment", "device"),
    "m": ("segment", "device"),
    "active": ("segment", "device"),
    "gram": ("segment", "device", "other_device"),
}
"""Dims, after (point, trial, link_round), of what `output.save_link` keeps. Stored as
`link_<name>`, a complex one as `link_<name>_real` and `link_<name>_imag`. Segments are counted in
each group."""

FORMAT = 1
"""Of result files: raised when files come to have what older programs would misread. Files from
before there were numbers are 0."""

IN_MEMORY_BYTES = 2**32
"""Results larger than this are written to disk as they are made."""

LAZY_ABOVE_BYTES = 2**30
"""Results larger than this are read from disk only where they are used."""


def to_dataset(record: Record, points: Sequence[Point], scenario: Scenario) -> xr.Dataset:
    """The record of one stack with dims (point, trial, round[, device]).

    points: what was stacked, in the record's order. scenario: the whole sweep's, which the
    attributes keep. Raises ValueError for a variable that is not in `VARIABLES` or whose shape
    is not what its dims say.
    """
    data = {}
    for name, values in record.variables.items():
        if name not in VARIABLES:
            raise ValueError(f"{name} is not in otafl.results.variables.VARIABLES")
        known = VARIABLES[name]
        dims = ("point", *known.dims)
        if np.ndim(values) != len(dims):
            raise ValueError(f"{name} has shape {np.shape(values)}, but dims {dims}")
        attributes = {"units": known.units, "long_name": known.long_name}
        data[name] = (dims, np.asarray(values, dtype=np.float64), attributes)
    data |= _link_variables(record.link or {})
    dataset = xr.Dataset(data)
    dataset = dataset.assign_coords({dim: np.arange(n) for dim, n in dataset.sizes.items()})
    if "cause" in dataset.dims:
        dataset = dataset.assign_coords(cause=list(CAUSES))
    if "timeline_activity" in dataset:
        dataset["timeline_activity"].attrs |= {
            "flag_values": np.arange(len(ACTIVITIES)),
            "flag_meanings": " ".join(ACTIVITIES),
        }
    if "link_round" in dataset.dims:
        # the first delivery is that of round 1, as in `round`, where 0 is before any
        dataset = dataset.assign_coords(link_round=dataset["link_round"] + 1)
    axes = _axes(scenario)
    index = np.asarray([point.index for point in points], dtype=np.int64)
    places = np.unravel_index(index, _shape(axes))
    for axis, place in zip(axes, places, strict=False):  # without axes there is one place still
        for name, (values, attributes) in _axis_coordinates(axis).items():
            dataset = dataset.assign_coords({name: ("point", values[place], attributes)})
    last = float(record.rounds[-1]) if record.rounds else math.nan
    dataset = dataset.assign_coords(
        round=("round", np.asarray(record.rounds, dtype=np.int64), {"long_name": "round"}),
        point_index=("point", index),
        final_round=("point", np.full(len(index), last), {"long_name": "last recorded round"}),
    )
    dataset.attrs = _attributes(scenario, axes) | {"complete": int(record.complete)}
    return dataset


def combine(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Parts of one sweep as one dataset with dims (sweep axes, trial, round[, device]).

    Points that are in no part, and devices and rounds that a point has not, are NaN.
    attrs["complete"] is 1 where every point is there and ran to its end. Of a point that two parts
    hold, the first counts.
    """
    axes = json.loads(parts[0].attrs["sweep"])
    shape = _shape(axes)
    whole = joined(parts).drop_vars("point_index").reset_coords("final_round")
    found = whole["point"].values
    whole = whole.reindex(point=np.arange(math.prod(shape)))
    whole = whole.set_coords("final_round").sortby("round")
    whole = _unfold(whole, axes, shape)
    whole.attrs["complete"] = int(len(found) == math.prod(shape) and whole.attrs["complete"])
    return whole


def joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Parts of one sweep as one part, with `point` numbered as in the sweep: NaN where a point has
    not what others have. Of a point that two parts hold, the first counts."""
    axes = json.loads(parts[0].attrs["sweep"])
    names = {name for axis in axes for name in axis["coords"]}
    names |= {axis["dim"] for axis in axes}
    bare = [part.drop_vars(names, errors="ignore") for part in parts]
    bare = [part.assign_coords(point=part["point_index"].values) for part in bare]
    # attributes of the first part stand for all: the parts of a sweep differ in `complete` alone
    whole = xr.concat(
        [part.drop_vars("point_index").reset_coords("final_round") for part in bare],
        dim="point",
        data_vars="all",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="override",
    )
    whole = whole.drop_duplicates("point").set_coords("final_round")
    whole = whole.assign_coords(point_index=("point", whole["point"].values))
    whole.attrs["complete"] = int(all(part.attrs["complete"] for part in parts))
    return whole


def final(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """A variable of a combined dataset at the end of each trial, without `round`: the last record
    of the point, or that at which the trial reached its target or ended. NaN for a trial that
    diverged."""
    values = dataset[name]
    if "round" not in values.dims:
        return values
    ends = dataset["final_round"]
    for early in ("end_round", "stop_round"):
        if early in dataset:
            ends = dataset[early].fillna(ends)
    values = values.where(values["round"] == ends).max("round", keep_attrs=True)
    return values.drop_vars("final_round", errors="ignore")


def write_part(dataset: xr.Dataset, path: Path | str) -> None:
    """Write a dataset as NetCDF so that the file is whole or not there at all.

    Raises WriteError where the folder or the disk does not allow it.
    """
    checked = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
    encoding = {name: checked for name, value in dataset.variables.items() if value.ndim}
    encoding = {name: value for name, value in encoding.items() if _numeric(dataset[name])}
    with written(Path(path)) as temporary:
        if dataset.nbytes > IN_MEMORY_BYTES:
            dataset.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
            return
        # HDF5 dies of a full disk, not with an error: what it makes in memory is written after
        temporary.write_bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))


def read_part(path: Path | str, lazy: bool = False) -> xr.Dataset:
    """One file as it was written; `lazy` reads values only where they are used.

    Raises UserError for a file that is missing, damaged or not otafl's.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; `otafl run` and `otafl sweep` write results")
    try:
        dataset = xr.open_dataset(path, engine="h5netcdf", chunks={} if lazy else None)
        if not lazy:
            with dataset:
                dataset = dataset.load()
    except Exception as error:  # what h5py raises for damaged files is not documented
        raise UserError(
            f"{path}: is damaged or no NetCDF-4 file ({_first_line(error)}); delete it and run the "
            "same command again: only what it held is computed anew"
        ) from error
    if "scenario_hash" not in dataset.attrs or "sweep" not in dataset.attrs:
        raise UserError(
            f"{path}: is a NetCDF file, but no otafl result; give a file that `otafl run` wrote or "
            "the folder of an `otafl sweep`"
        )
    if dataset.attrs.get("format", 0) > FORMAT:
        raise UserError(
            f"{path}: was written by otafl {dataset.attrs.get('otafl_version')} in a format that "
            f"this one ({versions()['otafl']}) does not know; update otafl to read it"
        )
    return dataset


def open_results(source: Path | str) -> xr.Dataset:
    """A result file, or the folder of a sweep, as one dataset: see `combine`.

    Large results are read lazily. Raises UserError, naming the file, where one cannot be read.
    """
    source = Path(source)
    if source.is_dir():
        paths = finished_files(source)
        if not paths:
            raise UserError(
                f"{source}: no finished parts (parts/*.nc) in this folder; give a result file or "
                "the folder of an `otafl sweep` of which at least one part is finished"
            )
    else:
        paths = [source]
    lazy = sum(path.stat().st_size for path in paths if path.is_file()) > LAZY_ABOVE_BYTES
    parts = [read_part(path, lazy) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if not same(part.attrs, parts[0].attrs):
            raise UserError(
                f"{path}: belongs to another scenario than {paths[0].name}; keep each sweep in a "
                "folder of its own"
            )
    return combine(parts) if "point" in parts[0].dims else parts[0]


def finished_files(folder: Path, of_one: bool = True) -> list[Path]:
    """The files of a sweep's folder: those of many stacks (`otafl.results.packing`), then those of one."""
    packs, parts = (sorted((folder / name).glob("*.nc")) for name in ("packs", "parts"))
    return [*packs, *parts] if of_one else packs


def _link_variables(link: dict[str, np.ndarray]) -> dict[str, Any]:
    """Variables `link_<name>`; complex ones in two parts, which every NetCDF reader knows."""
    data = {}
    for key, values in link.items():
        base, _, group = key.partition("/")
        own = LINK_DIMS.get(base, tuple(f"{base}_axis{i}" for i in range(values.ndim - 3)))
        own = tuple(f"segment_{group}" if dim == "segment" and group else dim for dim in own)
        dims, name = ("point", "trial", "link_round", *own), "link_" + key.replace("/", "_")
        if np.iscomplexobj(values):
            data[f"{name}_real"] = (dims, values.real)
            data[f"{name}_imag"] = (dims, values.imag)
        else:
            data[name] = (dims, values.astype(np.float32) if values.dtype == bool else values)
    return data


def _axes(scenario: Scenario) -> list[dict[str, Any]]:
    """The sweep's axes as plain data: dim, size, and coords {name: {values, units, long_name}}."""
    return [
        {
            "dim": dim,
            "size": len(axis.values),
            "coords": {
                name: {"values": one.values, "units": one.units, "long_name": one.long_name}
                for name, one in ({dim: axis} | axis.coords).items()
            },
        }
        for dim, axis in axes_of(scenario).items()
    ]


def _shape(axes: list[dict[str, Any]]) -> tuple[int, ...]:
    """Points of a sweep are numbered in C order over this shape; one point has shape (1,)."""
    return tuple(axis["size"] for axis in axes) or (1,)


def _axis_coordinates(axis: dict[str, Any]) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Coordinate name -> values and attributes: numbers as float64 or int64, choices as text."""
    coordinates = {}
    for name, coordinate in axis["coords"].items():
        attributes = {key: coordinate[key] for key in ("units", "long_name") if coordinate[key]}
        coordinates[name] = (_coordinate(coordinate["values"]), attributes)
    return coordinates


def _coordinate(values: list[Any]) -> np.ndarray:
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return np.asarray(values)
    return np.asarray([value if isinstance(value, str) else json.dumps(value) for value in values])


def _unfold(whole: xr.Dataset, axes: list[dict[str, Any]], shape: tuple[int, ...]) -> xr.Dataset:
    """`point` replaced by the sweep's axes, in the scenario's order, with their coordinates."""
    if not axes:
        return whole.isel(point=0).drop_vars("point")
    dims = [axis["dim"] for axis in axes]
    whole = whole.drop_vars("point")
    if len(dims) == 1:
        whole = whole.rename(point=dims[0])
    else:
        places = np.unravel_index(np.arange(math.prod(shape)), shape)
        named = {dim: ("point", place) for dim, place in zip(dims, places, strict=True)}
        whole = whole.assign_coords(named).set_index(point=dims).unstack("point").drop_vars(dims)
    for axis in axes:
        for name, (values, attributes) in _axis_coordinates(axis).items():
            whole = whole.assign_coords({name: (axis["dim"], values, attributes)})
    return whole.transpose(*dims, "trial", "round", ..., missing_dims="ignore")


def _attributes(scenario: Scenario, axes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "Conventions": "CF-1.11",
        "title": scenario.name,
        **about(scenario),
        "sweep": json.dumps(axes),
        "seed": scenario.seed,
        "device_name": _device_name(scenario.engine.device),
        "accumulation": "symbols, bits, joules and seconds accumulate from round 0",
        "format": FORMAT,
    } | {f"{name}_version": version for name, version in versions().items()}


@functools.cache
def versions() -> dict[str, str]:
    """Of otafl and the packages that its numbers depend on."""
    names = {"sionna": ("sionna-no-rt", "sionna")}
    packages = ("otafl", "torch", "sionna", "numpy", "xarray")
    return {name: _version(*names.get(name, (name,))) for name in packages}


def _version(*names: str) -> str:
    """The version of the first distribution of these names that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


def _device_name(device: str) -> str:
    """The processor that computed, as its maker calls it."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _numeric(values: xr.DataArray) -> bool:
    return values.dtype.kind in "fiu" and values.size > 0


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
