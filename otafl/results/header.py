"""Attributes of a result file, read here with types and limits.

Another program may have written the file.

`check` is called once where a file is opened. After it, the functions below and plain access give
values of the types that `to_dataset` writes.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from otafl.core.errors import UserError
from otafl.results import origins
from otafl.results.checksums import format_reason
from otafl.results.origins import get_versions
from otafl.results.variables import get_variable
from otafl.scenario.yaml_source import MAX_POINTS, parse

if TYPE_CHECKING:
    import xarray as xr

MAX_CHARACTERS = 1 << 24
"""Of one attribute."""

NEEDED_TEXTS = ("title", "scenario_hash", "device_name")

MAX_INTEGER = 2**63

Number = Annotated[float | int, Field(ge=-MAX_INTEGER, lt=MAX_INTEGER)]


class _Coordinate(BaseModel):
    """A coordinate along an axis of a sweep."""

    model_config = ConfigDict(strict=True)

    values: list[Any]
    units: str = ""
    long_name: str = ""


class _Axis(BaseModel):
    """An axis of a sweep."""

    model_config = ConfigDict(strict=True)

    dim: str = Field(min_length=1)
    size: int = Field(ge=1, le=MAX_POINTS)
    coords: dict[str, _Coordinate]

    @model_validator(mode="after")
    def _check_values(self) -> _Axis:
        if self.dim in ("trial", "round", "device", "point"):
            raise ValueError(f"no axis of a sweep is called '{self.dim}'")
        if not self.coords:
            raise ValueError("has no coordinate")
        for name, one in self.coords.items():
            if len(one.values) != self.size:
                raise ValueError(f"{name} has {len(one.values)} values along {self.size} points")
            if any(isinstance(v, int) and abs(v) >= MAX_INTEGER for v in one.values):
                raise ValueError(f"{name} has a number of more than 64 bits")
        return self


_AXES = TypeAdapter(list[_Axis])


def check(dataset: xr.Dataset) -> dict[str, Any]:
    """Check what a result file says of itself, and that its variables fit.

    Returns
    -------
    dict
        Attributes with Python's own types.

    Raises
    ------
    UserError
        Names the attribute or variable that is not as otafl writes it.
    """
    attributes = {name: _to_plain(name, value) for name, value in dataset.attrs.items()}
    for name in NEEDED_TEXTS:
        _check_line(name, attributes.get(name))
    for name, absent in (("seed", None), ("complete", None), ("format", 0)):
        if not isinstance(attributes.get(name, absent), int):
            raise UserError(
                f"attribute {name}: expected a whole number, {_format_given(attributes, name)}"
            )
    for name in get_versions():
        attributes.setdefault(f"{name}_version", "not stored")
        _check_line(f"{name}_version", attributes[f"{name}_version"])
    axes = read_axes(attributes)
    _check_sweep(read_scenario(attributes), axes)
    if origins.ATTRIBUTE in attributes:
        origins.read(attributes)
    _check_variables(dataset, axes)
    return attributes


def read_axes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the axes of a result's sweep in the scenario's order.

    An axis has dim, size, and coords {name: {values, units, long_name}}. Raises UserError if the
    attribute is anything else.
    """
    text = attributes.get("sweep")
    if not isinstance(text, str):
        raise UserError(
            f"attribute sweep: expected JSON text, {_format_given(attributes, 'sweep')}"
        )
    return _parse_axes(text)


@functools.lru_cache(maxsize=64)
def _parse_axes(text: str) -> list[dict[str, Any]]:
    try:
        axes = _AXES.validate_python(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"attribute sweep: expected the axes of a sweep ({format_reason(error)})"
        ) from error
    dims = [axis.dim for axis in axes]
    if len({*dims}) < len(dims):
        raise UserError("attribute sweep: expected different axes, and one occurs twice")
    if math.prod(axis.size for axis in axes) > MAX_POINTS:
        raise UserError(f"attribute sweep: expected at most {MAX_POINTS:,} points")
    return [axis.model_dump() for axis in axes]


def read_scenario(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario of a result as plain data, parsed with the limits of a scenario's file.

    Nothing that it names is imported. Raises UserError where it is none.
    """
    text = attributes.get("scenario")
    if not isinstance(text, str):
        raise UserError(
            f"attribute scenario: expected YAML text, {_format_given(attributes, 'scenario')}"
        )
    return _parse_scenario(text)


@functools.lru_cache(maxsize=16)
def _parse_scenario(text: str) -> dict[str, Any]:
    try:
        tree = parse(text).data
    except UserError as error:
        raise UserError(f"attribute scenario: {error}") from error
    if not isinstance(tree, dict):
        raise UserError("attribute scenario: expected a mapping with the keys of a scenario")
    return tree


def _check_sweep(tree: dict[str, Any], axes: list[dict[str, Any]]) -> None:
    """Check that the axes are those that the scenario says."""
    swept = tree.get("sweep") or {}
    if not isinstance(swept, dict) or len(swept) != len(axes):
        raise UserError("attribute sweep: expected the axes of the attribute scenario")
    for (key, values), axis in zip(swept.items(), axes, strict=True):
        keys = {key}
        if key == "zip" and isinstance(values, list):
            keys = {name for row in values if isinstance(row, dict) for name in row}
        if len(keys) != len(axis["coords"].keys() - {"zip"}):
            raise UserError("attribute sweep: expected a coordinate for each key that is swept")


def _to_plain(name: str, value: Any) -> Any:
    """Return an attribute with Python's own type."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise UserError(f"attribute {name}: expected at most {MAX_CHARACTERS:,} characters")
    return value


def _check_line(name: str, value: Any) -> None:
    """Check that an attribute is a line of text that a terminal shows as it is."""
    if not isinstance(value, str) or not value.isprintable():
        given = "it is missing" if value is None else f"got {_shorten(value)}"
        raise UserError(f"attribute {name}: expected a line of text, {given}")


def _format_given(attributes: Mapping[str, Any], name: str) -> str:
    return f"got {_shorten(attributes[name])}" if name in attributes else "it is missing"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check_variables(dataset: xr.Dataset, axes: list[dict[str, Any]]) -> None:
    """Check that a result has the variables that every reader counts on, of the right kinds."""
    points = math.prod(axis["size"] for axis in axes)
    for name in ("round", "trial"):
        if name in dataset.variables or name in dataset.dims:
            _check_coordinate(dataset, name, name, "iuf")
    if "round" in dataset.coords and (np.diff(dataset["round"].values) <= 0).any():
        raise UserError("variable round: expected numbers that rise")
    dims = {axis["dim"] for axis in axes}
    if "final_round" in dataset.variables:
        is_sound = dataset["final_round"].dtype.kind in "iuf"
    else:  # of one point that somebody has selected
        is_sound = not ({*dims, "point"} & set(dataset.dims))
    if not is_sound:
        raise UserError("variable final_round: expected a number for each point of the sweep")
    if "point" in dataset.dims:
        _check_coordinate(dataset, "point_index", "point", "iu")
        index = dataset["point_index"].values
        if len({*index.tolist()}) < len(index) or ((index < 0) | (index >= points)).any():
            raise UserError(f"variable point_index: expected different numbers below {points}")
        if dataset["final_round"].dims != ("point",):
            raise UserError("variable final_round: expected the dimension point")
    else:
        if "final_round" in dataset.variables and not dims.issuperset(dataset["final_round"].dims):
            raise UserError("variable final_round: expected the dimensions of the sweep's axes")
        for axis in axes:
            _check_axis(dataset, axis)
    for key, variable in dataset.variables.items():
        _check_variable(dataset, str(key), variable)


def _check_coordinate(dataset: xr.Dataset, name: str, dim: str, kinds: str) -> None:
    ok = name in dataset.coords and dataset[name].dims == (dim,) and dataset[name].size > 0
    if not ok or dataset[name].dtype.kind not in kinds or not dataset[name].notnull().all():
        raise UserError(f"variable {name}: expected whole numbers along the dimension {dim}")


def _check_axis(dataset: xr.Dataset, axis: dict[str, Any]) -> None:
    """Check the coordinates of an axis, all of whose points need not be there."""
    dim = axis["dim"]
    if dim not in dataset.dims:
        return
    for name, one in axis["coords"].items():
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in one["values"])
        kinds = "iuf" if numeric else "UO"
        found = dataset[name] if name in dataset.coords else None
        if found is None or found.dims != (dim,) or found.dtype.kind not in kinds or not found.size:
            said = "numbers" if numeric else "text"
            raise UserError(f"variable {name}: expected {said} along the dimension {dim}")
        if not numeric and not all(str(value).isprintable() for value in found.values):
            raise UserError(f"variable {name}: expected lines of text")


def _check_variable(dataset: xr.Dataset, name: str, variable: xr.Variable) -> None:
    for key in ("units", "long_name"):
        if key in variable.attrs:
            _check_line(f"{key} of {name}", _to_plain(key, variable.attrs[key]))
    if name in dataset.coords:
        return
    if scaled := {"scale_factor", "add_offset"} & variable.encoding.keys():
        raise UserError(f"variable {name}: expected numbers as they are, got {min(scaled)}")
    if variable.dtype.kind not in "iufb":
        raise UserError(f"variable {name}: expected numbers, got {variable.dtype}")
    try:
        about = get_variable(name)
    except KeyError:
        return
    if not {"trial", "round"} & {*about.dims} <= {*variable.dims}:
        raise UserError(
            f"variable {name}: expected the dimensions {', '.join(about.dims)}, got "
            f"{', '.join(map(str, variable.dims)) or 'none'}"
        )
