"""Export a `torch.export` program: a file that PyTorch loads and runs without otafl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from otafl.core.files import write_atomically
from otafl.exporting.measure import Run, check_not_quantised, make_run_fn

SUFFIX = ".pt2"
NAME = "torch.export"


def write(
    module: nn.Module, input_shape: Sequence[int], path: Path, quantise: str | None = None
) -> None:
    """Write a file for `torch.export.load(path).module()`; the batch's size is left open."""
    check_not_quantised(quantise)
    x = torch.zeros(2, *input_shape)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(module, (x,), dynamic_shapes=shapes)
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        torch.export.save(program, file)


def make_runner(path: Path) -> Run:
    """Return what runs a file on samples [batch, *input_shape]."""
    return make_run_fn(torch.export.load(path).module())
