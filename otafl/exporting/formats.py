"""Export to PyTorch, ONNX, LiteRT and safetensors, and of low-rank adapters for PEFT.

Each format is one function, which writes a model to a file. If another runtime can run the file, it
returns a function that does, whose scores are compared with those of the PyTorch module.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.factorised.decomposition import svd
from otafl.models.modules import BASE, Params, detect_form

OPSET = 20

Run = Callable[[np.ndarray], np.ndarray]
"""Samples [batch, *input_shape] -> scores [batch, classes], both float32."""

TOLERANCE = 1e-4
"""Largest difference of two scores, relative to the largest score: rounding of float32."""
BATCH = 500


@dataclass(frozen=True)
class ModelSource:
    """A trained model as formats write it.

    module: the model in float32 and eval mode. params: what it is made of, for formats of weights.
    parts: those of each of several models that are combined. build_fn: makes a module of params.
    """

    module: nn.Module
    input_shape: tuple[int, ...]
    params: Params = field(default_factory=dict)
    parts: Sequence[Params] = ()
    build_fn: Callable[[Params], nn.Module] | None = None


class Scored(NamedTuple):
    """Scores [n, classes] and their accuracy, NaN without classes."""

    scores: np.ndarray
    accuracy: float


def make_run_fn(module: nn.Module) -> Run:
    """Return what runs the module itself, as other runtimes are called."""

    @torch.inference_mode()
    def run(x: np.ndarray) -> np.ndarray:
        scores: np.ndarray = module(torch.from_numpy(x)).numpy()
        return scores

    return run


def score_samples(run: Run, x: np.ndarray, y: np.ndarray) -> Scored:
    """Score samples x [n, *input_shape] with labels y [n] in batches."""
    scores = np.concatenate([run(x[i : i + BATCH]) for i in range(0, len(x), BATCH)])
    classes = y.ndim == 1
    return Scored(scores, float((scores.argmax(1) == y).mean()) if classes else math.nan)


def find_difference(before: Scored, after: Scored) -> str | None:
    """Describe the difference of scores after a conversion; None if it is only rounding."""
    largest = float(np.abs(before.scores).max())
    apart = float(np.abs(before.scores - after.scores).max())
    if apart <= TOLERANCE * largest:
        return None
    return f"scores differ by {apart:.3g}, of at most {largest:.3g}"


def write_pytorch(source: ModelSource, path: Path) -> Run:
    """Write a `torch.export` program, which PyTorch loads and runs without otafl.

    The file is for `torch.export.load(path).module()`; the batch's size is left open.
    """
    x = torch.zeros(2, *source.input_shape)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(source.module, (x,), dynamic_shapes=shapes)
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        torch.export.save(program, file)
    return make_run_fn(torch.export.load(path).module())


def write_onnx(source: ModelSource, path: Path) -> Run:
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


def write_litert(source: ModelSource, path: Path) -> Run:
    """Write a LiteRT (TensorFlow Lite) file, which maps a sample to its scores.

    The sample is [1, *input_shape], as in PyTorch. Raises UserError if a package is not installed
    or the model cannot be converted.
    """
    with _hide_notes():
        converter = import_extra("--to litert", "litert", "litert_torch")
        runtime = import_extra("--to litert", "litert", "ai_edge_litert.interpreter")
        converter.config.show_progress = False
        try:
            made = converter.convert(source.module, (torch.zeros(1, *source.input_shape),))
        except Exception as error:  # each of its passes has errors of its own
            raise UserError(
                f"--to litert: LiteRT cannot convert this model: {str(error).splitlines()[0]}; use "
                "--to onnx"
            ) from error
    with write_atomically(path) as temporary:
        temporary.write_bytes(made.model_content())
    interpreter = runtime.Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    into, out = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def run(x: np.ndarray) -> np.ndarray:
        scores = []
        for sample in x:
            interpreter.set_tensor(into["index"], sample[None])
            interpreter.invoke()
            scores.append(interpreter.get_tensor(out["index"])[0])
        return np.stack(scores)

    return run


def write_safetensors(source: ModelSource, path: Path) -> None:
    """Write the weights by the model's names, in a file that `model.start` reads.

    The file also has the frozen parameters of a user-defined module. Raises UserError if the model
    consists of several, or has factors instead of weights.
    """
    parts = source.parts
    if len(parts) > 1 or detect_form(parts[0]) != "dense":
        what = "factors" if len(parts) == 1 else f"{len(parts)} combined models"
        raise UserError(f"--to safetensors: the model has {what}; use --to pytorch or onnx")
    weights = {
        name: one.float()
        for name, one in parts[0].items()
        if not name.endswith((".mean", ".variance"))
    }
    named = source.module.named_parameters()
    frozen = {name: one for name, one in named if not one.requires_grad}
    safetensors.write(weights | frozen, path)


@contextlib.contextmanager
def _hide_notes() -> Iterator[None]:
    """Hide the notes of exporters on their own progress."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


PREFIX = "base_model.model."
"""Beginning of the names in PEFT's files."""

RANK_TOLERANCE = 1e-5
"""Singular values below this share of the largest are rounding."""


def write_peft(source: ModelSource, path: Path) -> None:
    """Write low-rank adapters and their base to a folder, in the file layout of PEFT.

    The folder is created. It has `adapter_config.json` and `adapter_model.safetensors`, which PEFT
    loads onto a module with the weights of `base.safetensors`:

        module = otafl.load_model("run.nc")
        module.load_state_dict(safetensors.torch.load_file("adapters/base.safetensors"))
        model = peft.PeftModel.from_pretrained(module, "adapters")

    The parameters have the weights "base.NAME" before the adapters were merged. The factors B = U
    S^(1/2) and A = S^(1/2) V^T are those of the singular value decomposition of what the adapters
    add to a weight. So they are the same whatever mode has trained them, and alpha = r. Raises
    UserError if the model has no adapters.

    References
    ----------
    Hugging Face 2023, "PEFT", https://huggingface.co/docs/peft, section "PEFT checkpoint format".
    """
    params = source.params
    before = {name.removeprefix(BASE): b for name, b in params.items() if name.startswith(BASE)}
    if not before:
        raise UserError(
            "--to peft: the model has no adapters; use a result of algorithm: lora, or another "
            "format"
        )
    assert source.build_fn is not None
    merged, base = (source.build_fn(one).float() for one in (params, {**params, **before}))
    factors = _find_adapters(merged, base)
    rank = max(len(a) for a, _ in factors.values())
    tensors: dict[str, Tensor] = {}
    for name, (a, b) in factors.items():
        missing = rank - len(a)
        shapes = merged.state_dict()[f"{name}.weight"].shape
        a, b = functional.pad(a, (0, 0, 0, missing)), functional.pad(b, (0, missing))
        tensors[f"{PREFIX}{name}.lora_A.weight"] = a.view(rank, *shapes[1:])
        tensors[f"{PREFIX}{name}.lora_B.weight"] = b.view(-1, rank, *[1] * (len(shapes) - 2))
    head = [name for name, one in merged.named_modules() if hasattr(one, "weight")][-1]
    heads = [] if head in factors else [head]  # the last layer, which is trained whole
    for name, block in merged.state_dict().items():
        if name.rpartition(".")[0] in heads:
            tensors[f"{PREFIX}{name}"] = block
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": list(factors),
        "modules_to_save": heads or None,
    }
    path.mkdir(parents=True, exist_ok=True)
    safetensors.write(tensors, path / "adapter_model.safetensors")
    safetensors.write(dict(base.state_dict()), path / "base.safetensors")
    with write_atomically(path / "adapter_config.json") as temporary:
        temporary.write_text(json.dumps(config, indent=2) + "\n")


def _find_adapters(merged: nn.Module, base: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Factorise the changes of the weights of layers into A [r, inputs] and B [outputs, r].

    The rank r is the smallest. The inputs of a convolution are the numbers of its window. Raises
    UserError if anything else has changed.
    """
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    before = base.state_dict()
    for key, block in merged.state_dict().items():
        if torch.equal(block, before[key]):
            continue
        name, _, kind = key.rpartition(".")
        layer = merged.get_submodule(name)
        if kind != "weight" or not isinstance(layer, nn.Linear | nn.Conv2d):
            raise UserError(
                f"--to peft: the adapters change {key} of a {type(layer).__name__}, and they are "
                "exported of the weights of Linear and Conv2d; use --to safetensors"
            )
        change = (block - before[key]).flatten(1).double()
        u, s, vt = (one[0] for one in svd(change[None], full_matrices=False))
        rank = max(1, int((s > RANK_TOLERANCE * s[0]).sum()))
        root = s[:rank].sqrt()
        factors[name] = (root[:, None] * vt[:rank]).float(), (u[:, :rank] * root).float()
    if not factors:
        raise UserError("--to peft: the adapters are zero, as before the first round; train them")
    return factors
