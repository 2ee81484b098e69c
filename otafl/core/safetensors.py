"""Reading and writing of safetensors files: named tensors without any code.

A file is the length of a header (8 bytes, little-endian), the header in JSON with dtype, shape and
place of each tensor, and the numbers.

References
----------
Hugging Face 2022, "safetensors", https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otafl.core.files import write_atomically
from otafl.core.inputs import MIB, read_bytes

MAX_BYTES = 4096 * MIB
"""Largest file that is read."""

MAX_HEADER = 16 * MIB
"""Largest header that is read."""

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


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
    content = read_bytes(path, MAX_BYTES)
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(MAX_HEADER, len(content) - 8):
        raise ValueError("its header is longer than the file")
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise ValueError("its header is no JSON") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no mapping")
    header.pop("__metadata__", None)
    numbers = bytearray(content[8 + size :])
    return {name: _read_tensor(name, about, numbers) for name, about in header.items()}


def _read_tensor(name: str, about: Any, numbers: bytearray) -> Tensor:
    """Return one tensor. Raises ValueError if its description does not fit the file."""
    try:
        dtype, shape = DTYPES[about["dtype"]], [int(side) for side in about["shape"]]
        first, last = (int(place) for place in about["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its tensor {name!r} has no known dtype, shape and place") from error
    count = math.prod(shape)
    if min([0, *shape]) < 0 or not 0 <= first <= last <= len(numbers):
        raise ValueError(f"its tensor {name!r} lies outside the file")
    if last - first != count * dtype.itemsize:
        raise ValueError(f"its tensor {name!r} has another number of bytes than its shape")
    if not count:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(numbers, dtype=dtype, count=count, offset=first).reshape(shape).clone()


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
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {}
    parts, place = [], 0
    for name, tensor in sorted(tensors.items(), key=lambda one: -one[1].dtype.itemsize):
        part = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        end = place + len(part)
        shape = list(tensor.shape)
        header[name] = {"dtype": names[tensor.dtype], "shape": shape, "data_offsets": [place, end]}
        parts.append(part)
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for part in parts:
            file.write(part)
