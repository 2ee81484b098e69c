"""Files that others may have written, read by a child with limits of time and memory.

This module imports little, so that the child starts quickly.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import h5py
from loky import ProcessPoolExecutor

from otafl.results.checksums import ChecksumError

LIMIT_S = 60.0
LIMIT_BYTES = 2**32
"""Time and memory within which a child reads a file."""


Read = Callable[[Path], None]
"""Reads a file to its end; raises ChecksumError for one that cannot be read."""


@contextlib.contextmanager
def limit_reading() -> Iterator[Read]:
    """Yield a function that reads a NetCDF-4 file to its end, in a child with limits.

    The child starts with the first file, takes about a second for it, and ends with the `with`
    statement.
    """
    started: list[ProcessPoolExecutor] = []

    def read(path: Path) -> None:
        if not started:
            started.append(ProcessPoolExecutor(max_workers=1, initializer=_limit_memory))
        try:
            started[0].submit(_read_chunks, path).result(LIMIT_S)
        except TimeoutError:
            started.pop().shutdown(kill_workers=True)
            raise ChecksumError(f"it cannot be read within {LIMIT_S:g} s") from None
        except BrokenProcessPool:
            started.pop().shutdown(kill_workers=True)
            raise ChecksumError("HDF5 fails when it reads it") from None

    try:
        yield read
    finally:
        for executor in started:
            executor.shutdown(kill_workers=True)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))


def _read_chunks(path: Path) -> None:
    """Read all attributes and values, chunk by chunk, which HDF5 compares with its checksums."""
    try:
        with h5py.File(path, "r") as file:
            for values in (file, *file.values()):
                for name in values.attrs:
                    values.attrs.get(name)
            for values in file.values():
                if isinstance(values, h5py.Dataset) and values.dtype.kind in "fiu":
                    for place in values.iter_chunks() if values.chunks else [...]:
                        values[place]
    except MemoryError:
        limit = f"{LIMIT_BYTES / 2**30:g} GiB"
        raise ChecksumError(f"reading it takes more than {limit} of memory") from None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ChecksumError(f"a chunk cannot be read ({type(error).__name__})") from error
