"""Write plain data to a file, and read it without running anything that the file holds.

Plain data are tensors, NumPy arrays, numbers, texts, None, and dicts, lists, tuples and sets of
these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from otafl.core.files import write_atomically
from otafl.results import checksums

_ARRAY = "numpy array"


def save(tree: Any, path: Path) -> None:
    """Write plain data; the file is whole or not there.

    Raises WriteError where the disk does not allow it, TypeError for what is not plain.
    """
    save_archive(_to_tensors(tree), path)


def save_archive(tree: Any, path: Path) -> None:
    """Write what `torch.save` takes, with a checksum; the file is whole or not there.

    Raises WriteError where the disk does not allow it.
    """
    with write_atomically(path, replaces=True) as temporary:
        try:
            torch.save(tree, temporary)
        except RuntimeError as error:  # of its C++, on a full disk say
            raise OSError(str(error).partition("\n")[0]) from error
        checksums.forget(path)
    checksums.write(path)


def load(path: Path) -> Any:
    """Read plain data, tensors to the device that they were on.

    Raises OSError if the file cannot be read; ChecksumError where its checksum differs; torch's and
    pickle's errors where it holds anything else, which is not run.
    """
    if path.is_symlink():
        raise checksums.ChecksumError("it is a link, and otafl makes none")
    checksums.check(path)
    return _from_tensors(torch.load(path, weights_only=True))


def _to_tensors(tree: Any) -> Any:
    """Return arrays as tensors, so that the file names no code."""
    if isinstance(tree, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(tree).copy()), "shape": tree.shape}
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, dict):
        return {key: _to_tensors(value) for key, value in tree.items()}
    if type(tree) in (list, tuple, set):
        return type(tree)(_to_tensors(value) for value in tree)
    if isinstance(tree, torch.Size):
        return tuple(tree)
    if tree is None or isinstance(tree, torch.Tensor | str | bool | int | float | complex):
        return tree
    raise TypeError(f"a {type(tree).__name__} is no plain data")


def _from_tensors(tree: Any) -> Any:
    if isinstance(tree, dict):
        if _ARRAY in tree:
            return tree[_ARRAY].numpy().reshape(tree["shape"])
        return {key: _from_tensors(value) for key, value in tree.items()}
    if type(tree) in (list, tuple, set):
        return type(tree)(_from_tensors(value) for value in tree)
    return tree
