"""Export to ONNX: PyTorch's exporter writes it, onnxruntime runs it."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.exporting.measure import Run, check_not_quantised

OPSET = 20
SUFFIX = ".onnx"
NAME = "onnxruntime"


def write(
    module: nn.Module, input_shape: Sequence[int], path: Path, quantise: str | None = None
) -> None:
    """Write one file of opset 20 with an open batch size.

    It maps "samples" [batch, *input_shape] to "scores" [batch, classes]. Raises UserError if a
    package is not installed or the model cannot be exported.
    """
    check_not_quantised(quantise)
    import_extra("--to onnx", "onnx", "onnx", "onnxscript", "onnxruntime")
    x = torch.zeros(2, *input_shape)  # 1 would be taken for a fixed size
    with write_atomically(path) as temporary, _silence():
        try:
            program = torch.onnx.export(
                module,
                (x,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["samples"],
                output_names=["scores"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise UserError(
                f"--to onnx: PyTorch cannot export this model: {str(error).splitlines()[0]}"
            ) from error
        assert program is not None
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # lines of Python, larger than a small model
        program.save(temporary, external_data=False)


def make_runner(path: Path) -> Run:
    """Return what runs a file on samples [batch, *input_shape], on one thread."""
    runtime = import_extra("--to onnx", "onnx", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(x: np.ndarray) -> np.ndarray:
        scores: np.ndarray = session.run(None, {name: x})[0]
        return scores

    return run


@contextlib.contextmanager
def _silence() -> Any:
    """Hide the exporter's notes on its own progress."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
