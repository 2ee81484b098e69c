"""Reading, writing and conversion of trace files, which contain channels.

A NumPy file has frequency responses alone:

    .npy   array (round, device), (round, device, antenna) or (round, device, antenna, group)
    .npz   array `h` or `a`, or the variables and attributes of a trace by their names; an archive
           of a single array is read as .npy

Nothing that a file contains is run: arrays of Python objects are refused.
"""

from __future__ import annotations

import errno
import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otafl.channels.base import Ground, Positions
from otafl.core.arrays import refuse_wrong, to_numbers, to_single
from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.core.suggestions import shorten

AXES = ("round", "device", "antenna", "group")
"""Dimensions of the frequency responses of a trace."""

CONVERT = (
    "save its array of complex numbers by numpy.save; numpy.loadtxt, scipy.io.loadmat or h5py "
    "reads it"
)
"""Remedy for files of other formats."""

FINITE = "expected finite numbers up to 3.4e38, and 0 for a device without a path"
"""Expected numbers of a trace, for messages."""

SUFFIXES = (".npy", ".npz")
"""Ends of the names of files that are read here."""

MAX_BYTES = 1 << 33
"""Largest size of a file's arrays, which are kept in memory."""


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read a file of `SUFFIXES` from an untrusted source.

    Parameters
    ----------
    path : str or Path
        File.

    Returns
    -------
    dict of str to ndarray
        Arrays by their names; `h` [R, K, A, F] for frequency responses.

    Raises
    ------
    UserError
        If the file cannot be read, or the responses have another shape, type or are not finite.
    """
    label, suffix = f"'{path}'", Path(path).suffix
    if suffix not in SUFFIXES:
        raise UserError(f"{label} ends in none of {', '.join(SUFFIXES)}; {CONVERT}")
    try:
        with open_regular(path, MAX_BYTES) as opened:
            found = {"h": _read_npy(opened)} if suffix == ".npy" else _read_archive(opened, label)
    except UserError:
        raise
    except Exception as error:  # NumPy and zipfile parse headers, and raise many kinds
        reason = getattr(error, "strerror", None) or "it is not an array of numbers"
        raise UserError(f"{label} cannot be read ({reason}); give a .npy or .npz file") from error
    if len(found) == 1 and "h" not in found:
        found = {"h": next(iter(found.values()))}
    return {
        name: to_responses(value, f"{name} of {label}" if suffix == ".npz" else label, name)
        if name in ("h", "a")
        else value
        for name, value in found.items()
    }


def to_responses(source: Any, label: str, name: str = "h") -> np.ndarray:
    """Return responses as an array, complex [R, K, A, F], or with paths [R, K, A, L].

    Parameters
    ----------
    source : array
        Numbers (round, device), (round, device, antenna) or (round, device, antenna, group).
        Amplitudes of paths have all four dimensions.
    label : str
        Name in messages.
    name : {"h", "a"}
        Frequency responses, or amplitudes of paths.

    Raises
    ------
    UserError
        If the array has another shape or type, or is not finite.
    """
    h = to_numbers(source, label, "complex numbers", "iufc")
    if h.dtype.kind != "c":
        raise UserError(
            f"{label}: got {h.dtype.name} {list(h.shape)}; expected complex numbers: of parts x "
            "and y save x + 1j * y, of magnitudes x + 0j, in decibels 10 ** (x / 20) + 0j"
        )
    if h.ndim not in ((4,) if name == "a" else (2, 3, 4)) or not h.size:
        axes = "antenna, path" if name == "a" else "[antenna[, group]]"
        raise UserError(f"{label} has the shape {h.shape}; expected (round, device, {axes})")
    to_single(h, label, "numbers", AXES, FINITE)
    return h.reshape((*h.shape, 1, 1)[:4]).astype(np.complex128)


def _read_npy(opened: Any) -> np.ndarray:
    found = np.load(opened, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ValueError("an archive of arrays")
    return found


def _read_archive(opened: Any, label: str) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, which may not grow beyond `MAX_BYTES`."""
    with zipfile.ZipFile(opened) as archive:
        if sum(one.file_size for one in archive.infolist()) > MAX_BYTES:
            raise UserError(
                f"{label} has more than {MAX_BYTES >> 30} GiB, and a trace is kept in memory; use "
                "fewer rounds, devices or groups"
            )
        return {
            name.removesuffix(".npy"): _read_npy(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
        }


SCHEMA = "otafl-trace-1"

ATTRIBUTES = {"carrier_hz", "bandwidth_hz"}
"""Attributes of a trace, which arrays may leave out."""

POSITIONS = ("position_m", "base_m")
GROUND = ("x_m", "y_m", "coverage_db", "roof_m")
KNOWN = ("h_real", "h_imag", "a_real", "a_imag", "tau_s", "gain", *POSITIONS, *GROUND)


@dataclass(frozen=True)
class Responses:
    """Contents of a trace file with R rounds and K devices.

    Parameters
    ----------
    response : ndarray, complex [R, K, A, F] or [R, K, A, L]
        Frequency responses, or amplitudes of paths if there are delays.
    delay_s : ndarray [R or 1, K, L], or None
        Delays of the paths in seconds.
    gain : ndarray [R or 1, K], or None
        Large-scale gains.
    bandwidth_hz : float, optional
        Bandwidth of the responses; None if the file does not state it.
    position_m, base_m : ndarray [R or 1, K, 3] and [3], optional
        Positions of the devices and the base station in metres.
    ground : Ground, optional
        Map of the place.
    """

    response: np.ndarray
    delay_s: np.ndarray | None
    gain: np.ndarray | None
    bandwidth_hz: float | None
    position_m: np.ndarray | None = None
    base_m: np.ndarray | None = None
    ground: Ground | None = None

    def get_positions(self, round: int, devices: np.ndarray) -> Positions | None:
        """Return the positions of the base station and some devices [K] in a round of the file."""
        if self.position_m is None or self.base_m is None:
            return None
        place = self.position_m[round % len(self.position_m)]
        return Positions(place[devices, :2], self.base_m[None, :2], self.ground)


def read(path: str) -> Responses:
    """Read a trace, or channels of a NumPy file, from an untrusted source.

    Raises UserError if the file does not exist, is not a trace, or its numbers are not a channel's.
    """
    if not Path(path).exists():
        raise UserError(f"channel.path: there is no file '{path}'; otafl.convert_trace writes one")
    is_array = Path(path).suffix in SUFFIXES
    if is_array:
        try:
            arrays = read_arrays(path)
        except UserError as error:
            raise UserError(f"channel.path: {error}") from error
        attributes = {name: arrays.pop(name) for name in ATTRIBUTES if name in arrays}
    else:
        arrays, attributes = _read_netcdf(path)
        _check_schema(path, attributes)
    for name in ("h", "a"):
        if name in arrays:
            whole = arrays.pop(name)
            arrays |= {f"{name}_real": whole.real, f"{name}_imag": whole.imag}
    return _to_responses(path, arrays, attributes, () if is_array else tuple(sorted(ATTRIBUTES)))


def _read_netcdf(path: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the variables and the attributes of a NetCDF-4 or HDF5 file."""
    import h5netcdf

    try:
        with (
            open_regular(path) as opened,
            h5netcdf.File(opened, "r", phony_dims="sort") as file,
        ):
            sizes = {
                name: _count_bytes(value) for name, value in file.variables.items() if name in KNOWN
            }
            if sum(sizes.values()) > MAX_BYTES:
                raise UserError(
                    f"channel.path: '{path}' has more than {MAX_BYTES >> 30} GiB, and a trace is "
                    "kept in memory; use fewer rounds, devices or groups"
                )
            arrays = {name: np.asarray(file.variables[name]) for name in sizes}
            attributes = dict(file.attrs)
    except UserError:
        raise
    except OSError as error:
        reason = f": it {error.strerror}" if error.errno == errno.EINVAL else ""
        raise UserError(
            f"channel.path: '{path}' is not a NetCDF-4 or HDF5 file{reason}; {CONVERT}"
        ) from error
    except Exception as error:  # h5py and h5netcdf raise undocumented errors for odd files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"channel.path: '{path}' cannot be read ({reason})") from error
    return arrays, attributes


def _to_responses(
    path: str,
    arrays: dict[str, np.ndarray],
    attributes: dict[str, Any],
    required: tuple[str, ...],
) -> Responses:
    """Check the contents of a file, of which some attributes are required."""
    kind = "a" if "a_real" in arrays else "h"
    needed = ("a_real", "a_imag", "tau_s") if kind == "a" else ("h_real", "h_imag")
    missing = [name for name in needed if name not in arrays]
    missing += [name for name in required if name not in attributes]
    if missing:
        raise UserError(
            f"channel.path: '{path}' lacks {', '.join(missing)}, and has "
            f"{', '.join(arrays) or 'nothing of a trace'}; {CONVERT}"
        )
    for name, values in arrays.items():
        _check_numbers(path, name, values)
    real, imaginary = arrays[needed[0]], arrays[needed[1]]
    last = "path" if kind == "a" else "group"
    if real.ndim != 4:
        raise UserError(
            f"channel.path: {needed[0]} of '{path}' has {real.ndim} dimensions; expected (round, "
            f"device, antenna, {last})"
        )
    if not real.size:
        raise UserError(f"channel.path: {needed[0]} of '{path}' is empty, {real.shape}")
    if imaginary.shape != real.shape:
        raise UserError(
            f"channel.path: {needed[1]} of '{path}' has the shape {imaginary.shape}; expected "
            f"that of {needed[0]}, {real.shape}"
        )
    response = real + 1j * imaginary
    rounds, devices, _, paths = response.shape
    delay = arrays["tau_s"] if kind == "a" else None
    if delay is not None:
        delay = _fit(path, "tau_s", delay, (rounds, devices, paths))
    gain = arrays.get("gain")
    if gain is not None:
        gain = _fit(path, "gain", gain, (rounds, devices))
    position = base = None
    if all(name in arrays for name in POSITIONS):
        position = _fit(path, "position_m", arrays["position_m"], (rounds, devices, 3))
        base = arrays["base_m"]
        if base.shape != (3,):
            raise UserError(
                f"channel.path: base_m of '{path}' has the shape {base.shape}; expected (3,)"
            )
    known = {
        name: _read_positive(path, attributes, name) for name in ATTRIBUTES & attributes.keys()
    }
    return Responses(
        response,
        delay,
        gain,
        known.get("bandwidth_hz"),
        position,
        base,
        _read_ground(path, arrays, attributes),
    )


def _count_bytes(variable: Any) -> int:
    """Return the size of a variable in memory."""
    return math.prod(variable.shape) * np.dtype(variable.dtype).itemsize


def _check_schema(path: str, attributes: dict[str, Any]) -> None:
    schema = attributes.get("schema")
    schema = schema.decode(errors="replace") if isinstance(schema, bytes) else schema
    if not isinstance(schema, str) or schema != SCHEMA:
        shown = shorten(repr(schema), 40)
        raise UserError(
            f"channel.path: '{path}' has the schema attribute {shown}; expected '{SCHEMA}'; "
            f"{CONVERT}"
        )


def _check_numbers(path: str, name: str, values: np.ndarray) -> None:
    """Check that a variable has real numbers, finite except for the map.

    A place of the map may have no coverage.
    """
    label = f"channel.path: {name} of '{path}'"
    axes = AXES if values.ndim == len(AXES) else ("position",)
    to_numbers(values, label, "real numbers", "iuf")
    if name not in GROUND:
        to_single(values, label, "numbers", axes, FINITE)
    if name in ("tau_s", "gain"):
        refuse_wrong(values < 0, values, label, "numbers", "negative", "must be at least 0", axes)


def _read_positive(path: str, attributes: dict[str, Any], name: str) -> float:
    """Return an attribute that is a positive number."""
    value = np.asarray(attributes[name])
    if value.size == 1 and value.dtype.kind in "iuf":
        number = float(value.item())
        if 0.0 < number < math.inf:
            return number
    raise UserError(
        f"channel.path: the attribute {name} of '{path}' must be a positive number of hertz"
    )


def _read_ground(
    path: str, arrays: dict[str, np.ndarray], attributes: dict[str, Any]
) -> Ground | None:
    """Return the map of the place, if the file has it."""
    if not all(name in arrays for name in GROUND):
        return None
    x, y, coverage, roof = (arrays[name] for name in GROUND)
    shape = (y.size, x.size)
    if x.ndim != 1 or y.ndim != 1 or coverage.shape != shape or roof.shape != shape:
        raise UserError(
            f"channel.path: coverage_db and roof_m of '{path}' must have the shape (y, x), {shape}"
        )
    return Ground(x, y, coverage, roof, str(attributes.get("attribution", "")))


def write(
    path: str | Path,
    carrier_hz: float,
    bandwidth_hz: float,
    response: np.ndarray,
    name: str,
    last: str,
    others: dict[str, Any],
) -> None:
    """Write responses [round, device, antenna, last] and other variables.

    `name` is the kind of the responses, "h" or "a".
    """
    import xarray as xr

    dims = ("round", "device", "antenna", last)
    variables = {f"{name}_real": (dims, response.real), f"{name}_imag": (dims, response.imag)}
    attributes = {"schema": SCHEMA, "carrier_hz": carrier_hz, "bandwidth_hz": bandwidth_hz}
    xr.Dataset(variables | others, attrs=attributes).to_netcdf(path, engine="h5netcdf")


def _fit(path: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values with a round dimension, which has length 1 if they had none."""
    if values.shape == shape[1:]:
        values = values[None]
    if values.shape not in (shape, (1, *shape[1:])):
        raise UserError(
            f"channel.path: {name} of '{path}' has the shape {values.shape}; expected {shape} or "
            f"{shape[1:]}"
        )
    return values


def convert_trace(
    source: Any,
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
) -> tuple[int, int, int, int]:
    """Write measured channels as a trace, which `channel: {name: trace, path: ...}` reads.

    Parameters
    ----------
    source : array, complex [rounds, devices[, antennas[, groups]]], str or Path
        Frequency responses at the centres of equal groups of sub-carriers; or a NumPy file of such
        an array (.npy, or .npz with the array h).
    path : str or Path
        NetCDF-4 file to write.
    carrier_hz, bandwidth_hz : float
        Carrier frequency, and bandwidth that the groups cover, in Hz.

    Returns
    -------
    tuple of int
        Numbers of rounds, devices, antennas and groups.

    Raises
    ------
    UserError
        If the array has another shape, is not finite, or the file cannot be read.
    """
    for name, value in (("carrier_hz", carrier_hz), ("bandwidth_hz", bandwidth_hz)):
        if not 0 < value < math.inf:
            raise UserError(f"{name}: got {value!r}; must be a positive number of hertz")
    if isinstance(source, str | Path):
        arrays = read_arrays(source)
        if "h" not in arrays:
            raise UserError(
                f"'{source}' has the arrays {', '.join(arrays) or 'none'}; expected h, the "
                "frequency responses"
            )
        h = arrays["h"]
    else:
        h = to_responses(source, "the array")
    write(path, carrier_hz, bandwidth_hz, h, "h", "group", {})
    rounds, devices, antennas, groups = h.shape
    return rounds, devices, antennas, groups
