"""Results with attributes and variables that are not as otafl writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

Change = Callable[[xr.Dataset], xr.Dataset]

ODD_ATTRIBUTES: dict[str, Any] = {
    "integer": 7,
    "float": 0.5,
    "array": np.arange(3),
    "bytes": np.bytes_(b"\xff\xfe"),
    "word": "x",
    "control": "a\x00b\x1b[2J",
    "numbers": "[1, 2]",
    "deep": "[" * 3000 + "]" * 3000,
    "cut": '[{"dim": "snr_db"',
}
"""Name -> what stands in the place of an attribute."""

ODD_AXES: dict[str, Any] = {
    "no dim": [{"size": 2, "coords": {}}],
    "dim is no text": [{"dim": 3, "size": 2, "coords": {}}],
    "other dim": [{"dim": "x", "size": 4, "coords": {"x": {"values": [1, 2, 3, 4]}}}],
    "size is no number": [{"dim": "snr_db", "size": "2", "coords": {}}],
    "huge": [{"dim": "snr_db", "size": 10**12, "coords": {"snr_db": {"values": [0]}}}],
    "too few values": [{"dim": "snr_db", "size": 4, "coords": {"snr_db": {"values": [0]}}}],
    "nested values": [{"dim": "snr_db", "size": 1, "coords": {"snr_db": {"values": [[0]]}}}],
    "reserved dim": [{"dim": "round", "size": 4, "coords": {"round": {"values": [1, 2, 3, 4]}}}],
}
"""Name -> what stands in the attribute `sweep`."""

ODD_ORIGINS: dict[str, Any] = {
    "no list": {"points": "0"},
    "no points": [{"versions": {}, "sources": {}}],
    "points are no text": [{"points": 3, "versions": {}, "sources": {}}],
    "many points": [{"points": "0-99999999999", "versions": {}, "sources": {}}],
    "huge points": [{"points": "9" * 5000, "versions": {}, "sources": {}}],
    "versions are a list": [{"points": "0-3", "versions": [1], "sources": {}}],
    "sources are a list": [{"points": "0-3", "versions": {}, "sources": [1]}],
    "commit is no hash": [
        {"points": "0-3", "versions": {}, "sources": {}, "commit": "\x1b[2J" + "a" * 40}
    ],
}
"""Name -> what stands in the attribute `origins`."""

ODD_SCENARIOS: dict[str, str] = {
    "no YAML": "a: [",
    "unknown keys": "name: x\nbanana: 1",
    "sweep is a list": "name: x\nsweep: [1]",
    "bomb": "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
    "surrogate": 'name: "\\ud800"',
}
"""Name -> what stands in the attribute `scenario`."""


USED = ("test_accuracy", "test_loss", "tx_energy_j", "airtime_s", "diverged_round")


def iterate_changes(result: xr.Dataset) -> Iterator[tuple[str, Change]]:
    """Yield names and changes of a result as it was written."""
    for name in result.attrs:
        yield f"attribute {name} is gone", _remove_attribute(name)
        for said, value in ODD_ATTRIBUTES.items():
            yield f"attribute {name} is {said}", _set_attribute(name, value)
    for name, table in (("sweep", ODD_AXES), ("origins", ODD_ORIGINS)):
        for said, tree in table.items():
            yield f"attribute {name}: {said}", _set_attribute(name, json.dumps(tree))
    for said, text in ODD_SCENARIOS.items():
        yield f"attribute scenario: {said}", _set_attribute("scenario", text)
    variables = [name for name in USED if name in result]
    for name in map(str, [*result.coords, *variables]):
        yield f"{name} is gone", lambda ds, name=name: ds.drop_vars(name)
        yield f"{name} is text", _change_values(name, lambda v: np.full(v.shape, "x"))
        yield f"{name} is NaN", _change_values(name, lambda v: np.full(v.shape, np.nan))
        yield f"{name} is complex", _change_values(name, lambda v: np.full(v.shape, 1j))
        for said, value in (("a scalar", 1.0), ("of another dimension", ("odd", np.arange(3.0)))):
            yield f"{name} is {said}", _replace(name, value)
        values = result[name].dims, result[name].values, {"units": 3, "long_name": np.arange(2)}
        yield f"{name} has odd units", _replace(name, values)
    for dim in result.dims:
        yield f"nothing along {dim}", lambda ds, dim=dim: ds.isel({dim: slice(0, 0)})
        yield (
            f"twice along {dim}",
            lambda ds, dim=dim: xr.concat([ds, ds], dim, data_vars="minimal"),
        )


def _remove_attribute(name: str) -> Change:
    return lambda ds: ds.drop_attrs(deep=False).assign_attrs(
        {key: value for key, value in ds.attrs.items() if key != name}
    )


def _set_attribute(name: str, value: Any) -> Change:
    return lambda ds: ds.assign_attrs({name: value})


def _change_values(name: str, made: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda ds: ds.drop_vars(name).assign({name: (ds[name].dims, made(ds[name].values))})


def _replace(name: str, value: Any) -> Change:
    return lambda ds: ds.drop_vars(name).assign({name: value})
