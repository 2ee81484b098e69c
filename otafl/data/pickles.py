"""The pickled batches of CIFAR's Python version, read without running what a pickle may ask for."""

from __future__ import annotations

import codecs
import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError

_PIXELS = 3 * 32 * 32


def read_batch(
    path: Path, labels: str, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [n, 3072] uint8 and labels [n] of a batch, `labels` being their key. UserError if the
    file is anything else."""
    try:
        with path.open("rb") as file:
            content = _Batches(file, encoding="bytes").load()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # a broken pickle fails in every way there is
        raise UserError(f"{path}: not a CIFAR batch: {error}") from error
    if not isinstance(content, dict) or not {b"data", labels.encode()} <= content.keys():
        raise UserError(f"{path}: not a CIFAR batch: it has no 'data' and {labels!r}")
    pixels, y = content[b"data"], content[labels.encode()]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise UserError(f"{path}: its 'data' are not an array of bytes")
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise UserError(
            f"{path}: its 'data' have shape {list(pixels.shape)}; wanted [n, {_PIXELS}]"
        )
    if not isinstance(y, list) or not all(type(one) is int and 0 <= one < classes for one in y):
        raise UserError(f"{path}: its {labels!r} are not a list of numbers from 0 to {classes - 1}")
    if len(y) != len(pixels):
        raise UserError(f"{path}: holds {len(pixels)} images but {len(y)} labels")
    return pixels, np.array(y, np.int64)


class _Batches(pickle.Unpickler):
    """Makes arrays and plain containers only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in this format
            return codecs.encode
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            core = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
            return importlib.import_module(f"{core}.multiarray")._reconstruct
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
