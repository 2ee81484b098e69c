"""Export to PyTorch, ONNX and safetensors.

Each format is one function: it writes a model to a file and returns a function that runs the file.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.exporting.measure import Run, Source, make_run_fn
from otafl.models.modules import build_module, split_parts

OPSET = 20


def write_pytorch(source: Source, path: Path, quantise: str | None = None) -> Run:
    """Write a `torch.export` program, which PyTorch loads and runs without otafl.

    The file is for `torch.export.load(path).module()`; the batch's size is left open.
    """
    x = torch.zeros(2, *source.input_shape)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(source.module, (x,), dynamic_shapes=shapes)
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        torch.export.save(program, file)
    return make_run_fn(torch.export.load(path).module())


def write_onnx(source: Source, path: Path, quantise: str | None = None) -> Run:
    """Write one ONNX file of opset 20 with an open batch size, which onnxruntime runs.

    It maps "samples" [batch, *input_shape] to "scores" [batch, classes]. Raises UserError if a
    package is not installed or the model cannot be exported.
    """
    import_extra("--to onnx", "onnx", "onnx", "onnxscript", "onnxruntime")
    runtime = import_extra("--to onnx", "onnx", "onnxruntime")
    x = torch.zeros(2, *source.input_shape)  # 1 would be taken for a fixed size
    with write_atomically(path) as temporary, _hide_notes():
        try:
            program = torch.onnx.export(
                source.module,
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
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(x: np.ndarray) -> np.ndarray:
        scores: np.ndarray = session.run(None, {"samples": x})[0]
        return scores

    return run


def write_safetensors(source: Source, path: Path, quantise: str | None = None) -> Run:
    """Write the weights by the model's names, in a file that `model.start` reads.

    The file also has the frozen parameters of a user-defined module. Raises UserError if the model
    consists of several, or has factors instead of weights.
    """
    parts = list(split_parts(source.recipe, source.params))
    if len(parts) > 1 or source.recipe["form"] != "dense":
        what = "factors" if len(parts) == 1 else f"{len(parts)} combined models"
        raise UserError(f"--to safetensors: the model has {what}; use --to pytorch or onnx")
    statistics = {n: one for n, one in parts[0].items() if n.endswith((".mean", ".variance"))}
    weights = {name: one.float() for name, one in parts[0].items() if name not in statistics}
    module = build_module(source.recipe, source.params)
    frozen = {name: one for name, one in module.named_parameters() if not one.requires_grad}
    safetensors.write(weights | frozen, path)
    plain = source.recipe | {"flat": None}
    return make_run_fn(build_module(plain, safetensors.read(path) | statistics).float().eval())


@contextlib.contextmanager
def _hide_notes() -> Iterator[None]:
    """Hide the notes of PyTorch's exporter on its own progress."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
