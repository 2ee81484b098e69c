"""Export the weights by the model's names, in a file that `model.start` reads.

The file also has the frozen parameters of a user-defined module.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.exporting.measure import Run, check_not_quantised, make_run_fn
from otafl.models.modules import Recipe, build_module, split_parts

SUFFIX = ".safetensors"
NAME = "safetensors"


def write_weights(
    recipe: Recipe, params: Mapping[str, Tensor], path: Path, quantise: str | None = None
) -> Run:
    """Write the weights of one model, and return what runs the file.

    Parameters
    ----------
    recipe : dict of str to any
        Recipe of the model.
    params : mapping of str to Tensor [*shape]
        Its parameters.
    path : Path
        File.
    quantise : str, optional
        Must be None.

    Returns
    -------
    callable
        Function of samples [batch, *input_shape] that returns scores.

    Raises
    ------
    UserError
        If the model consists of several, or has factors instead of weights.
    """
    check_not_quantised(quantise)
    parts = list(split_parts(recipe, params))
    if len(parts) > 1 or recipe["form"] != "dense":
        what = "factors" if len(parts) == 1 else f"{len(parts)} combined models"
        raise UserError(f"--to safetensors: the model has {what}; use --to pytorch or onnx")
    statistics = {name: one for name, one in parts[0].items() if _is_statistic(name)}
    weights = {name: one.float() for name, one in parts[0].items() if name not in statistics}
    module = build_module(recipe, params)
    frozen = {name: one for name, one in module.named_parameters() if not one.requires_grad}
    safetensors.write(weights | frozen, path)
    plain = recipe | {"flat": None}
    return make_run_fn(build_module(plain, safetensors.read(path) | statistics).float().eval())


def _is_statistic(name: str) -> bool:
    """Return whether a tensor is a statistic of batch normalisation."""
    return name.endswith((".mean", ".variance"))
