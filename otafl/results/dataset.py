"""Make the parts of a sweep into one table of variables.

A run is stored in parts. Each part holds the points of a sweep that ran in one stack, with dims
(point, trial, round[, device]). Combined, a result has the sweep's axes in place of `point`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl import scenario as scenarios
from otafl.devices.hardware import ACTIVITIES, CAUSES
from otafl.results import header, origins
from otafl.results.origins import get_device_name, get_versions
from otafl.results.variables import SUMS, Variable, find_metric, get_variable
from otafl.scenario.axes import are_numbers

if TYPE_CHECKING:
    from otafl.results.files import SweepFile
    from otafl.results.models import TrainedModels
    from otafl.scenario import Point, Scenario

_SEGMENT, _DEVICE = ("segment",), ("segment", "device")
LINK_VARIABLES = {
    "h": Variable("1", "channel of the device after the combiner", _DEVICE),
    "h_hat": Variable("1", "estimated channel of the device after the combiner", _DEVICE),
    "weight": Variable("1", "aggregation weight of the device", ("device",)),
    "eta": Variable("1", "receive scaling, over the noise variance of the receiver", _SEGMENT),
    "noise": Variable("1", "variance of the noise on a received real number", _SEGMENT),
    "tails": Variable("1", "energy of the heavy-tailed interference in a segment", _SEGMENT),
    "neighbours": Variable("1", "energy of other servers' devices in a segment", _SEGMENT),
    "p": Variable("1", "transmit scalar of the device", _DEVICE),
    "c": Variable("1", "effective gain of the device, 1 is exact", _DEVICE),
    "m": Variable("1", "mean square of the device's symbols before the transmit scalar", _DEVICE),
    "active": Variable("1", "whether the device transmits in the segment", _DEVICE),
    "sent": Variable("symbol", "symbols of the segment until the device crashes", _DEVICE),
    "rounding": Variable("1", "energy of the device's rounding error in a segment", _DEVICE),
    "range": Variable("1", "end R of the levels, of the payload or of each tensor", ("stretch",)),
    "gram": Variable(
        "1",
        "sum of conj(x_k) x_j over the symbols of a segment, device k by other_device j, before "
        "their transmit scalars",
        (*_DEVICE, "other_device"),
    ),
}
"""Variables of `output.save_link`, with their dims after (point, trial, link_round). Stored as
`link_<name>`, a complex one as `link_<name>_real` and `link_<name>_imag`. Segments and stretches
are counted in each group. With several servers each has its own, and `device` is
`server_device`."""

FORMAT = 1
"""The number of the files' format is raised when they come to have what older programs would
misread. Files from before there were numbers are 0."""


@dataclass(frozen=True)
class Record:
    """Measurements of the engine for the points of one stack.

    rounds: [R] rounds at which records were taken. variables: name of `VARIABLES` -> float [points,
    trials, R], [points, trials, R, devices] or [points, trials], as its dims say. link: name of
    `LINK_VARIABLES`, with "/<group>" where there are several -> [points, trials, rounds, ...], of
    every round from the first, or None. models: of all points and trials at the end, with
    `output.save_models`.
    """

    rounds: list[int]
    variables: dict[str, np.ndarray]
    link: dict[str, np.ndarray] | None = None
    models: TrainedModels | None = None


def to_dataset(
    record: Record,
    points: Sequence[Point],
    scenario: Scenario,
    inputs: Mapping[str, str] | None = None,
    trials: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> xr.Dataset:
    """Return the record of one stack with dims (point, trial, round[, device]).

    points: what was stacked, in the record's order. scenario: the whole sweep's, which the
    attributes keep. inputs: as of `origins.Origin`. trials: their numbers; from 0 if not given.
    names: of the points in files of stacks. Raises ValueError for a
    variable that is not in `VARIABLES` or whose shape is not what its dims say.
    """
    data = {}
    for name, values in record.variables.items():
        try:
            about_it = get_variable(name)
        except KeyError:
            raise ValueError(f"{name} is not in otafl.results.variables.VARIABLES") from None
        if name in SUMS and np.ndim(values) == len(about_it.dims):
            without = tuple(dim for dim in about_it.dims if dim != "device")
            about_it = Variable(about_it.units, f"{SUMS[name]}, sum over devices", without)
        dims = ("point", *about_it.dims)
        if np.ndim(values) != len(dims):
            raise ValueError(f"{name} has shape {np.shape(values)}, but dims {dims}")
        units = about_it.units
        if find_metric(name) == "loss":
            units = points[0].scenario.loss.units
        attributes = {"units": units, "long_name": about_it.long_name}
        data[name] = (dims, np.asarray(values, dtype=np.float64), attributes)
    data |= _build_link_variables(record.link or {})
    dataset = xr.Dataset(data)
    coordinates: dict[str, Any] = {
        str(dim): np.arange(size)
        for dim, size in dataset.sizes.items()
        if dim not in ("cause", "link_round", "round")
    }
    if "cause" in dataset.dims:
        coordinates["cause"] = list(CAUSES)
    if "link_round" in dataset.dims:
        # the first delivery is that of round 1, as in `round`, where 0 is before any
        coordinates["link_round"] = np.arange(1, dataset.sizes["link_round"] + 1)
    axes = _describe_axes(scenario)
    index = np.asarray([point.index for point in points], dtype=np.int64)
    places = np.unravel_index(index, _get_shape(axes))
    for axis, place in zip(axes, places, strict=False):  # without axes there is one place still
        for name, (values, attributes) in _build_axis_coordinates(axis).items():
            coordinates[name] = ("point", values[place], attributes)
    last = float(record.rounds[-1]) if record.rounds else math.nan
    coordinates |= {
        "round": ("round", np.asarray(record.rounds, dtype=np.int64), {"long_name": "round"}),
        "point_index": ("point", index),
        "final_round": ("point", np.full(len(index), last), {"long_name": "last recorded round"}),
    }
    if trials is not None:
        coordinates["trial"] = np.asarray(trials)
    if names is not None:
        coordinates["point_name"] = ("point", np.asarray(names, dtype=object))
    dataset = dataset.assign_coords(coordinates)  # at once: each call copies all variables
    if "timeline_activity" in dataset:
        dataset["timeline_activity"].attrs |= {
            "flag_values": np.arange(len(ACTIVITIES)),
            "flag_meanings": " ".join(ACTIVITIES),
        }
    first = points[0].scenario
    made = origins.make_origin(index.tolist(), scenarios.hash_custom_sources(first), inputs)
    dataset.attrs = {
        "Conventions": "CF-1.11",
        **describe_sweep(scenario),
        "seed": scenario.seed,
        "device_name": get_device_name(scenario.engine.device),
        "accumulation": "symbols, bits, joules and seconds accumulate from round 0",
        "format": FORMAT,
        **{f"{name}_version": version for name, version in get_versions().items()},
        "complete": 1,
        origins.ATTRIBUTE: origins.to_json([made]),
    }
    return dataset


def describe_sweep(scenario: Scenario) -> dict[str, str]:
    """Return the attributes of a result that say which sweep it is of."""
    axes = json.dumps(_describe_axes(scenario))
    return {"title": scenario.name, **scenarios.describe_scenario(scenario), "sweep": axes}


def select_points(part: xr.Dataset, sweep: SweepFile) -> xr.Dataset | None:
    """Return the points of a part that belong to a sweep, as numbered there; None without any."""
    places = {name: place for place, name in enumerate(sweep.names)}
    own = np.flatnonzero([name in places for name in part["point_name"].values])
    if not own.size:
        return None
    part = part.isel(point=own)
    index = [places[name] for name in part["point_name"].values]
    numbers = dict(zip(part["point_index"].values.tolist(), index, strict=True))
    made = origins.renumber_points(origins.read(part.attrs), numbers)
    part = part.assign_coords(point_index=("point", np.asarray(index, dtype=np.int64)))
    return part.assign_attrs({origins.ATTRIBUTE: origins.to_json(made)})


def combine(parts: Sequence[xr.Dataset], attributes: Mapping[str, Any]) -> xr.Dataset:
    """Combine parts of one sweep to one dataset with dims (sweep axes, trial, round[, device]).

    Points and trials that are in no part, and devices and rounds that a point has not, are NaN.
    attrs["complete"] is 1 where every trial of every point is there and ran to its end.

    Parameters
    ----------
    parts : sequence of Dataset
        Parts with the sweep's numbers of points, none of which has a trial of another.
    attributes : mapping
        Those of `describe_sweep`.
    """
    axes = header.read_axes(attributes)
    shape, trials = _get_shape(axes), int(header.read_scenario(attributes)["trials"])
    blocks: dict[tuple[int, ...], list[xr.Dataset]] = {}
    for part in parts:
        blocks.setdefault(tuple(part["trial"].values.tolist()), []).append(part)
    joined = [_join_points(block) for block in blocks.values()]
    count = sum(block.sizes["point"] * block.sizes["trial"] for block in joined)
    whole = joined[0]
    for block in joined[1:]:
        ends = xr.concat(
            xr.align(whole["final_round"], block["final_round"], join="outer"), "block"
        ).max("block")
        kept = {name: one.attrs for name, one in {**block.variables, **whole.variables}.items()}
        whole = whole.combine_first(block).assign(final_round=ends)
        for name, one in whole.variables.items():
            one.attrs = kept[name]
    whole = whole.reindex(point=np.arange(math.prod(shape)), trial=np.arange(trials))
    whole = whole.set_coords("final_round").sortby("round")
    whole = _unfold(whole, axes, shape)
    is_whole = count == math.prod(shape) * trials and all(p.attrs["complete"] for p in parts)
    made = origins.join_origins(origins.read(part.attrs) for part in parts)
    own = {"complete": int(is_whole), origins.ATTRIBUTE: origins.to_json(made)}
    whole.attrs = {**parts[0].attrs, **attributes, **own}
    return whole


def _join_points(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join parts of the same trials to one, with `point` numbered as in the sweep.

    NaN stands where a point has not what others have.
    """
    bare = []
    for part in parts:
        along = {name for name, one in part.coords.items() if one.dims == ("point",)}
        bare.append(part.drop_vars(along - {"point_index", "final_round"}))
    bare = [part.assign_coords(point=part["point_index"].values) for part in bare]
    bare = [part.drop_vars("point_index").reset_coords("final_round") for part in bare]
    return xr.concat(
        _unify_devices(bare),
        dim="point",
        data_vars="all",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="override",
    )


def _unify_devices(parts: list[xr.Dataset]) -> list[xr.Dataset]:
    """Add joules up over the devices of all parts where one has no more than the sum."""

    def has(part: xr.Dataset, name: str, devices: bool) -> bool:
        return name in part and ("device" in part[name].dims) == devices

    sums = [name for name in SUMS if any(has(part, name, False) for part in parts)]
    return [
        part.assign(
            {
                name: part[name]
                .sum("device", min_count=1)
                .assign_attrs(units=part[name].units, long_name=f"{SUMS[name]}, sum over devices")
                for name in sums
                if has(part, name, True)
            }
        )
        for part in parts
    ]


def build_point_grid(scenario: Scenario) -> xr.Dataset:
    """Return the number of each point, `point_index`, on the sweep's axes."""
    axes = _describe_axes(scenario)
    numbers = np.arange(math.prod(_get_shape(axes))).reshape([axis["size"] for axis in axes])
    table = xr.Dataset({"point_index": ([axis["dim"] for axis in axes], numbers)})
    return _label_axes(table, axes)


def _build_link_variables(link: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return variables `link_<name>`; complex ones in two parts, for every NetCDF reader."""
    data = {}
    for key, values in link.items():
        base, _, group = key.partition("/")
        about = LINK_VARIABLES.get(base)
        if about is None:
            about = Variable("1", base, tuple(f"{base}_axis{i}" for i in range(values.ndim - 3)))
        own, attributes = about.dims, {"units": about.units, "long_name": about.long_name}
        if values.ndim > 3 + len(own):  # of each server
            own = ("server", *("server_device" if dim == "device" else dim for dim in own))
        split = ("segment", "stretch") if group else ()
        own = tuple(f"{dim}_{group}" if dim in split else dim for dim in own)
        dims, name = ("point", "trial", "link_round", *own), "link_" + key.replace("/", "_")
        if np.iscomplexobj(values):
            for part, words in (("real", "real part"), ("imag", "imaginary part")):
                long_name = f"{about.long_name}, {words}"
                data[f"{name}_{part}"] = (
                    dims,
                    getattr(values, part),
                    attributes | {"long_name": long_name},
                )
        else:
            number = values.astype(np.float32) if values.dtype == bool else values
            data[name] = (dims, number, attributes)
    return data


def _describe_axes(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the sweep's axes as plain data.

    An axis has dim, size, and coords {name: {values, units, long_name}}.
    """
    return [
        {
            "dim": dim,
            "size": len(coordinates[dim].values),
            "coords": {name: one._asdict() for name, one in coordinates.items()},
        }
        for dim, coordinates in scenarios.build_axes(scenario).items()
    ]


def _get_shape(axes: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return the shape over which points are numbered in C order; one point has shape (1,)."""
    return tuple(axis["size"] for axis in axes) or (1,)


def _build_axis_coordinates(axis: dict[str, Any]) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Return coordinate name -> values and attributes.

    Numbers are float64 or int64, choices are text.
    """
    coordinates = {}
    for name, coordinate in axis["coords"].items():
        attributes = {key: coordinate[key] for key in ("units", "long_name") if coordinate[key]}
        values = coordinate["values"]
        if not are_numbers(values):
            values = [one if isinstance(one, str) else json.dumps(one) for one in values]
        coordinates[name] = (np.asarray(values), attributes)
    return coordinates


def _label_axes(dataset: xr.Dataset, axes: list[dict[str, Any]]) -> xr.Dataset:
    """Return a dataset with the coordinates of a sweep's axes."""
    for axis in axes:
        for name, (values, attributes) in _build_axis_coordinates(axis).items():
            dataset = dataset.assign_coords({name: (axis["dim"], values, attributes)})
    return dataset


def _unfold(whole: xr.Dataset, axes: list[dict[str, Any]], shape: tuple[int, ...]) -> xr.Dataset:
    """Replace `point` by the sweep's axes, in the scenario's order, with their coordinates."""
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
    whole = _label_axes(whole, axes)
    return whole.transpose(*dims, "trial", "round", ..., missing_dims="ignore")
