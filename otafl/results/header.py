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
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from otafl.core.checksums import format_reason
from otafl.core.errors import UserError
from otafl.core.suggestions import shorten
from otafl.results import origins
from otafl.results.origins import get_versions
from otafl.results.variables import get_variable
from otafl.scenario.axes import are_numbers
from otafl.scenario.yaml_source import MAX_POINTS, parse

if TYPE_CHECKING:
    import xarray as xr

TEXT = "UO"
"""NumPy's kinds of text."""

NEEDED_TEXTS = ("title", "scenario_hash", "device_name")


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
    attributes = {name: _to_plain(value) for name, value in dataset.attrs.items()}
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
    read_scenario(attributes)
    if origins.ATTRIBUTE in attributes:
        origins.read(attributes)
    # check that a result has the variables that every reader counts on, of the right kinds
    wanted = {name: (name, "iuf") for name in ("round", "trial") if name in dataset.dims}
    if "point" in dataset.dims:
        wanted |= {"point_index": ("point", "iu"), "final_round": ("point", "iuf")}
    for axis in axes:
        if axis["dim"] in dataset.dims:
            wanted |= {
                name: (axis["dim"], "iuf" if are_numbers(one["values"]) else TEXT)
                for name, one in axis["coords"].items()
            }
    for name, (dim, kinds) in wanted.items():
        found = dataset[name] if name in dataset.coords else None
        what = "text" if kinds == TEXT else "numbers"
        is_there = found is not None and found.dims == (dim,) and found.dtype.kind in kinds
        if found is None or not is_there or not found.size or found.isnull().any():
            raise UserError(f"variable {name}: expected {what} along the dimension {dim}")
        if kinds == TEXT and not all(str(value).isprintable() for value in found.values):
            raise UserError(f"variable {name}: expected lines of text")
    if "round" in dataset.dims and (np.diff(dataset["round"].values) <= 0).any():
        raise UserError("variable round: expected numbers that rise")
    if "point" in dataset.dims:
        index, points = dataset["point_index"].values, math.prod(axis["size"] for axis in axes)
        if len({*index.tolist()}) < len(index) or ((index < 0) | (index >= points)).any():
            raise UserError(f"variable point_index: expected different numbers below {points}")
    for key, one in dataset.variables.items():
        for kind in {"units", "long_name"} & one.attrs.keys():
            _check_line(f"{kind} of {key}", one.attrs[kind])
    for key, values in dataset.data_vars.items():
        _check_values(str(key), values)
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


def _to_plain(value: Any) -> Any:
    """Return an attribute with Python's own type."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.item() if isinstance(value, np.generic) else value


def _check_line(name: str, value: Any) -> None:
    """Check that an attribute is a line of text that a terminal shows as it is."""
    if not isinstance(value, str) or not value.isprintable():
        given = "it is missing" if value is None else f"got {_shorten(value)}"
        raise UserError(f"attribute {name}: expected a line of text, {given}")


def _format_given(attributes: Mapping[str, Any], name: str) -> str:
    return f"got {_shorten(attributes[name])}" if name in attributes else "it is missing"


def _shorten(value: Any) -> str:
    return shorten(repr(value), 40)


def _check_values(name: str, values: xr.DataArray) -> None:
    """Check the kind and the dimensions of a variable that is no coordinate."""
    if scaled := {"scale_factor", "add_offset"} & values.encoding.keys():
        raise UserError(f"variable {name}: expected numbers as they are, got {min(scaled)}")
    if values.dtype.kind not in "iufb":
        raise UserError(f"variable {name}: expected numbers, got {values.dtype}")
    try:
        wanted = get_variable(name).dims
    except KeyError:
        return
    if not {"trial", "round"} & {*wanted} <= {*values.dims}:
        raise UserError(
            f"variable {name}: expected the dimensions {', '.join(wanted)}, got "
            f"{', '.join(map(str, values.dims)) or 'none'}"
        )
