"""Files of named tensors: what is written is read, and a damaged file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from otafl.core import safetensors

pytestmark = pytest.mark.exact


def test_written_is_read(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6, dtype=torch.float32).view(2, 3).mT,
        "b": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.zeros(0, 3),
        "whole": torch.tensor([1, -2], dtype=torch.int64),
        "half": torch.tensor([0.5, -4.0], dtype=torch.bfloat16),
        "yes": torch.tensor([True, False, True]),
    }
    safetensors.write(tensors, tmp_path / "x.safetensors")
    found = safetensors.read(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    "header",
    ["{", '{"t": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 8]}}'],
)
def test_damaged_files_are_refused(header: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(8))
    with pytest.raises(ValueError, match="header and its numbers do not fit"):
        safetensors.read(path)


def test_parts_of_one_tensor_are_written_apart(tmp_path: Path) -> None:
    """The package refuses tensors that share memory."""
    whole = torch.arange(6.0)
    safetensors.write({"a": whole[:3], "b": whole}, tmp_path / "x.safetensors")
    assert torch.equal(safetensors.read(tmp_path / "x.safetensors")["a"], whole[:3])
