"""Read and write files of channels, traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otafl.channels.places import Ground, Places
from otafl.core.errors import UserError

SCHEMA = "otafl-trace-1"

POSITIONS = ("position_m", "base_m")
GROUND = ("x_m", "y_m", "coverage_db", "roof_m")


@dataclass(frozen=True)
class Responses:
    """Hold a file of R rounds and K devices. response: [R, K, A, F], or [R, K, A, L] with delay_s
    [R or 1, K, L]. gain: [R or 1, K], or None. position_m: [R or 1, K, 3] with base_m [3], or None.
    ground: what lies between them, if that is known."""

    response: np.ndarray
    delay_s: np.ndarray | None
    gain: np.ndarray | None
    bandwidth_hz: float
    position_m: np.ndarray | None = None
    base_m: np.ndarray | None = None
    ground: Ground | None = None

    def places(self, round: int, devices: np.ndarray) -> Places | None:
        """Return where the base station and some devices [K] are in a round of the file."""
        if self.position_m is None or self.base_m is None:
            return None
        place = self.position_m[round % len(self.position_m)]
        return Places(place[devices, :2], self.base_m[None, :2], self.ground)


def read(path: str) -> Responses:
    """Read a trace file. Raises UserError where there is none, or it is none."""
    import h5netcdf

    if not Path(path).is_file():
        raise UserError(
            f"channel.path: there is no file '{path}'; otafl.channels.trace.export writes one"
        )
    try:
        with h5netcdf.File(path, "r", phony_dims="sort") as file:
            arrays = {name: np.asarray(value) for name, value in file.variables.items()}
            attributes = dict(file.attrs)
    except OSError as error:
        raise UserError(f"channel.path: '{path}' is not a NetCDF-4 or HDF5 file") from error
    schema = attributes.get("schema")
    schema = schema.decode() if isinstance(schema, bytes) else schema
    if schema != SCHEMA:
        raise UserError(
            f"channel.path: '{path}' has the schema attribute {schema!r}; '{SCHEMA}' is understood"
        )
    kind = "a" if "a_real" in arrays else "h"
    needed = ("a_real", "a_imag", "tau_s") if kind == "a" else ("h_real", "h_imag")
    missing = [name for name in needed if name not in arrays]
    missing += [name for name in ("carrier_hz", "bandwidth_hz") if name not in attributes]
    if missing:
        raise UserError(f"channel.path: '{path}' lacks {', '.join(missing)}")
    response = arrays[needed[0]] + 1j * arrays[needed[1]]
    if response.ndim != 4:
        raise UserError(
            f"channel.path: {needed[0]} of '{path}' has {response.ndim} dimensions; (round, "
            f"device, antenna, {'path' if kind == 'a' else 'group'}) would do"
        )
    rounds, devices, _, paths = response.shape
    delay = arrays["tau_s"] if kind == "a" else None
    if delay is not None:
        delay = _fit(path, "tau_s", delay, (rounds, devices, paths))
    gain = arrays.get("gain")
    if gain is not None:
        gain = _fit(path, "gain", gain, (rounds, devices))
    position = base = ground = None
    if all(name in arrays for name in POSITIONS):
        position = _fit(path, "position_m", arrays["position_m"], (rounds, devices, 3))
        base = arrays["base_m"]
    if all(name in arrays for name in GROUND):
        x, y, coverage, roof = (arrays[name] for name in GROUND)
        ground = Ground(x, y, coverage, roof, str(attributes.get("attribution", "")))
    band_hz = float(attributes["bandwidth_hz"])
    return Responses(response, delay, gain, band_hz, position, base, ground)


def write(
    path: str | Path,
    carrier_hz: float,
    bandwidth_hz: float,
    response: np.ndarray,
    name: str,
    last: str,
    others: dict[str, Any],
) -> None:
    """Write responses [round, device, antenna, last], `name` of the two kinds "h" and "a", and
    other variables."""
    import xarray as xr

    dims = ("round", "device", "antenna", last)
    variables = {f"{name}_real": (dims, response.real), f"{name}_imag": (dims, response.imag)}
    attributes = {"schema": SCHEMA, "carrier_hz": carrier_hz, "bandwidth_hz": bandwidth_hz}
    xr.Dataset(variables | others, attrs=attributes).to_netcdf(path, engine="h5netcdf")


def _fit(path: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values with a round dimension, of length 1 where they have none."""
    if values.shape == shape[1:]:
        values = values[None]
    if values.shape not in (shape, (1, *shape[1:])):
        raise UserError(
            f"channel.path: {name} of '{path}' has the shape {values.shape}; {shape} or "
            f"{shape[1:]} would do"
        )
    return values
