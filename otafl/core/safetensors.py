"""Reading and writing of safetensors files: named tensors without any code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from otafl.core.files import MIB, read_bytes, write_atomically

MAX_BYTES = 4096 * MIB
"""Largest file that is read."""


def read(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file.

    Parameters
    ----------
    path : Path
        File.

    Returns
    -------
    dict of str to Tensor
        Tensors by name.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no safetensors file; its message says why.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_bytes(path, MAX_BYTES)
    try:
        return load(content)
    except (SafetensorError, KeyError) as error:  # KeyError for a dtype that torch does not have
        raise ValueError(f"its header and its numbers do not fit ({error})") from error


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a file, which is whole or absent.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Tensors by name.
    path : Path
        File.

    Raises
    ------
    OSError
        If the disk does not allow it.
    """
    from safetensors.torch import save

    own = {
        name: one.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, one in tensors.items()
    }
    with write_atomically(path) as temporary:
        temporary.write_bytes(save(own))
