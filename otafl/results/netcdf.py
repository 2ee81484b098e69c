"""Writer and reader of NetCDF files that look up each object of a file once.

xarray's own writer and reader look up every dimension of every variable again: 3,000 look-ups, and
a quarter of a second, for a file that takes 40 ms here. They still take what is built in another
way (with groups, unlimited dimensions or text of fixed length, or too large for memory).
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from h5py import h5a, h5ds, h5s, h5t
from xarray import conventions
from xarray.backends import AbstractDataStore, BackendArray
from xarray.core import indexing

UNREAD = {"REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
"""Attributes that say again how the file is built."""

HIDDEN = UNREAD | {"CLASS", "NAME", "DIMENSION_LIST", "_NCProperties", "_nc3_strict"}
"""Attributes that say how the file is built."""

NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
"""How the name of a dimension without coordinates begins."""

SCALE = b"DIMENSION_SCALE"
"""Class of what variables along a dimension refer to."""

CHECKED = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
"""How arrays of numbers are written."""

TEXT = h5py.string_dtype()
"""Text of any length."""


class _OtherBuild(Exception):
    """A file that has another structure than otafl's."""


def read(path: Path) -> xr.Dataset:
    """Read all of a file. Raises what `open_file` does."""
    with open_file(path) as dataset:
        return dataset.load()


def open_chunked(path: Path) -> xr.Dataset:
    """Open a file whose values Dask reads, chunk by chunk, where they are used."""
    return xr.open_dataset(path, engine="h5netcdf", chunks={})


def open_file(path: Path) -> xr.Dataset:
    """Open a file as `xarray.open_dataset` does, with values read where they are used.

    The caller closes it. Raises what h5py and xarray raise for damaged files and other formats.
    """
    file = h5py.File(path, "r")
    try:
        return xr.open_dataset(_Store(file, str(path)))
    except _OtherBuild:
        file.close()
        return xr.open_dataset(path, engine="h5netcdf")
    except BaseException:
        file.close()
        raise


def write(dataset: xr.Dataset, path: Path, in_memory: bool) -> None:
    """Write a dataset, compressed, with a checksum of each chunk.

    in_memory: make the file there first, since HDF5 dies of a full disk, not with an error.
    """
    numbers = [n for n, one in dataset.variables.items() if one.ndim and one.dtype.kind in "fiu"]
    encoding = {name: CHECKED for name in numbers if dataset[name].size}
    if not in_memory:
        dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    elif _is_plain(dataset):
        path.write_bytes(_content(dataset, encoding))
    else:
        path.write_bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))


def _content(dataset: xr.Dataset, encoding: Mapping[Any, Mapping[str, Any]]) -> bytes:
    """Return the content of a file, as `xarray.Dataset.to_netcdf` does."""
    variables, attributes = conventions.encode_dataset_coordinates(dataset)
    for name, of in encoding.items():
        variables[name].encoding = dict(of)
    variables, attributes = conventions.cf_encoder(variables, attributes)
    numbers = {str(dim): number for number, dim in enumerate(dataset.sizes)}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        _write_attributes(file, attributes)
        made = {n: _create(file, n, one, n in encoding) for n, one in variables.items()}
        scales = {dim: _scale(file, dim, dataset.sizes[dim], numbers[dim]) for dim in numbers}
        for name, one in variables.items():
            if one.dims and one.dims != (name,):
                for place, dim in enumerate(one.dims):
                    h5ds.attach_scale(made[name].id, scales[dim].id, place)
                ids = _ids(numbers[dim] for dim in one.dims)
                _write_attributes(made[name], {"_Netcdf4Coordinates": ids})
    return buffer.getvalue()


def _create(file: h5py.File, name: str, variable: xr.Variable, checked: bool) -> h5py.Dataset:
    values, attributes = np.asarray(variable.values), dict(variable.attrs)
    options: dict[str, Any] = {}
    if values.dtype.kind in "UO":
        values, options = values.astype(object), {"dtype": TEXT}
    if "_FillValue" in attributes:
        fill = values.dtype.type(attributes["_FillValue"])
        attributes["_FillValue"] = options["fillvalue"] = fill
    if checked:
        options |= {"compression": "gzip", "compression_opts": CHECKED["complevel"]}
        options |= {key: CHECKED[key] for key in ("shuffle", "fletcher32")}
    made = file.create_dataset(name, data=values, track_order=True, **options)
    _write_attributes(made, attributes)
    return made


def _scale(file: h5py.File, dim: str, size: int, number: int) -> h5py.Dataset:
    """Return what variables along a dimension refer to: its coordinate, or else an empty array."""
    if dim in file:
        scale, name = file[dim], dim
        _write_attributes(scale, {"_Netcdf4Coordinates": _ids([number])})
    else:
        scale = file.create_dataset(dim, (size,), ">f4", track_order=True)
        name = f"{NO_VARIABLE.decode()}.{size:10d}"
    scale.make_scale(name)
    scale.attrs["_Netcdf4Dimid"] = np.int32(number)
    return scale


def _ids(numbers: Iterable[int]) -> np.ndarray:
    return np.array([*numbers], dtype=np.int32)


def _write_attributes(of: h5py.File | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Write attributes that are not there yet; a number as an array of one, as others do.

    h5py's mapping would look for each in the object first, and for its type twice.
    """
    for name, value in attributes.items():
        values = np.array(value, TEXT) if isinstance(value, str) else np.atleast_1d(value)
        kind = h5t.py_create(values.dtype, logical=True)
        made = h5a.create(of.id, name.encode(), kind, h5s.create_simple(values.shape))
        made.write(values, mtype=h5t.py_create(values.dtype))


def _is_plain(dataset: xr.Dataset) -> bool:
    """Return whether `_content` can write a dataset.

    It can write numbers and text in memory, with attributes that are text, numbers or lists of
    numbers.
    """
    variables = dataset.variables
    said = [dataset.attrs, *(one.attrs for one in variables.values())]
    return (
        not dataset.encoding.get("unlimited_dims")
        and 0 not in dataset.sizes.values()
        and all(one.dims == (name,) for name, one in variables.items() if name in dataset.dims)
        and all(_is_plain_variable(name, one) for name, one in variables.items())
        and all(_is_plain_attribute(value) for of in said for value in of.values())
    )


def _is_plain_variable(name: Hashable, variable: xr.Variable) -> bool:
    if not isinstance(name, str) or "/" in name or variable.chunks is not None:
        return False
    is_text = variable.dtype.kind == "O" and all(isinstance(v, str) for v in variable.values.flat)
    return is_text or variable.dtype.kind in "iufU"


def _is_plain_attribute(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value
    values = np.asarray(value)
    return values.ndim < 2 and values.size > 0 and values.dtype.kind in "iuf"


class _Store(AbstractDataStore):
    """Data store of the variables of a file, for xarray."""

    def __init__(self, file: h5py.File, source: str) -> None:
        self._file, self._source = file, source
        self._scales: dict[int, str] = {}  # address in the file -> name of a dimension

    def get_variables(self) -> dict[str, xr.Variable]:
        """Return the variables, not decoded yet."""
        objects = [(name, self._file[name]) for name in self._file]
        said, found = {}, {}
        for name, values in objects:
            if not isinstance(values, h5py.Dataset) or name.startswith("_nc4_non_coord_"):
                raise _OtherBuild
            attributes = values.attrs
            said[name] = {key: attributes[key] for key in attributes if key not in UNREAD}
            if said[name].get("CLASS") == SCALE:
                self._scales[_address(values.id)] = name
        for name, values in objects:
            if not said[name].get("NAME", b"").startswith(NO_VARIABLE):
                found[name] = self._variable(name, values, said[name])
        sizes = {name: values.shape for name, values in objects}
        for one in found.values():
            if any(sizes.get(dim) != (size,) for dim, size in one.sizes.items()):
                raise _OtherBuild
        return found

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the file."""
        return _format_attributes(dict(self._file.attrs))

    def get_dimensions(self) -> dict[str, int]:
        """Return the sizes of dimensions, which the variables have too."""
        return {}

    def get_encoding(self) -> dict[str, Any]:
        """Return how the file is written: no dimension is unlimited."""
        return {"unlimited_dims": set()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _variable(
        self, name: str, values: h5py.Dataset, attributes: Mapping[str, Any]
    ) -> xr.Variable:
        text = h5py.check_string_dtype(values.dtype)
        if values.dtype.kind not in "iuf" and (text is None or text.length is not None):
            raise _OtherBuild
        if values.shape is None or values.maxshape != values.shape:
            raise _OtherBuild
        encoding = {
            "dtype": values.dtype if text is None else str,
            "contiguous": values.chunks is None,
            "chunksizes": values.chunks,
            "source": self._source,
            "original_shape": values.shape,
            "shuffle": values.shuffle,
            "fletcher32": values.fletcher32,
        }
        dims = self._dims(name, values, attributes)
        if values.chunks is not None:
            encoding["preferred_chunks"] = dict(zip(dims, values.chunks, strict=True))
        if values.compression not in (None, "gzip"):
            raise _OtherBuild
        if values.compression:
            encoding |= {"zlib": True, "complevel": values.compression_opts}
        data = indexing.LazilyIndexedArray(_Deferred(values))
        return xr.Variable(dims, data, _format_attributes(attributes), encoding)

    def _dims(
        self, name: str, values: h5py.Dataset, attributes: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Return the dimensions of a variable, which it names by references to their objects."""
        if attributes.get("CLASS") == SCALE:
            dims: tuple[str, ...] = (name,)
        else:
            listed = [list(each) for each in attributes.get("DIMENSION_LIST", ())]
            if any(len(each) != 1 for each in listed):
                raise _OtherBuild
            scales = [h5py.h5r.dereference(each[0], self._file.id) for each in listed]
            found = [self._scales.get(_address(scale)) for scale in scales if scale is not None]
            dims = tuple(name for name in found if name is not None)
        if len(dims) != values.ndim:
            raise _OtherBuild
        return dims


def _address(of: h5py.h5g.ObjectID) -> int:
    """Return where an object is in its file, which takes less to find than its name."""
    return int(h5py.h5o.get_info(of).addr)


class _Deferred(BackendArray):
    """Values of a variable that are read where they are used."""

    def __init__(self, values: h5py.Dataset) -> None:
        is_text = h5py.check_string_dtype(values.dtype) is not None
        self.shape = values.shape
        self.dtype = TEXT if is_text else values.dtype
        self._values = values.asstr() if is_text else values

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        return indexing.explicit_indexing_adapter(
            key, self.shape, support, self._values.__getitem__
        )


def _format_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are the user's: numbers, lists of them, and texts."""
    out = {}
    for name, value in attributes.items():
        if name in HIDDEN:
            continue
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf":
            out[name] = value[0] if len(value) == 1 else value
        elif isinstance(value, str | np.integer | np.floating):
            out[name] = value
        else:
            raise _OtherBuild
    return out
