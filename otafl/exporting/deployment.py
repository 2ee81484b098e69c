"""Extraction of a trained model from a result, as a PyTorch module or an export.

The scores of an export that another runtime runs are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import nn

from otafl import data as data_sets
from otafl import models
from otafl.core.errors import UserError
from otafl.core.suggestions import make_unknown_name_error
from otafl.engine.assembly import assemble, build_algorithm
from otafl.evaluation.trained_models import get_view_model
from otafl.exporting import formats
from otafl.exporting.formats import ModelSource, Run
from otafl.models.modules import build_module, count_macs, count_numbers, split_parts
from otafl.results import header
from otafl.results import models as trained
from otafl.results.coordinates import format_value, format_values, pick
from otafl.results.files import open_results
from otafl.scenario import Point, expand, load_scenario, restore_tree
from otafl.user_code import loading


class Format(NamedTuple):
    """A format of exported models: what runs its files, their suffix, and how they are written.

    `write` returns a function that runs the file, or None if no runtime is known.
    """

    runtime: str
    suffix: str
    write: Callable[[ModelSource, Path], Run | None]


FORMATS = {
    "onnx": Format("onnxruntime", ".onnx", formats.write_onnx),
    "litert": Format("LiteRT", ".tflite", formats.write_litert),
    "pytorch": Format("torch.export", ".pt2", formats.write_pytorch),
    "safetensors": Format("", ".safetensors", formats.write_safetensors),
    "peft": Format("", "", formats.write_peft),
}


@dataclass(frozen=True)
class SelectedModel:
    """One model of a result.

    index: its point of the sweep. result: the result at that point and trial. view: as it was
    saved, and the row and device in it. trust: the classes and functions that the result names
    (`module:callable`) may be run.
    """

    result: xr.Dataset
    index: int
    trial: int
    name: str
    view: trained.TrainedView
    row: int
    device: int | None
    trust: bool

    def build_module(self) -> nn.Module:
        """Return the model as a module in eval mode; raises UserError as `make_source`."""
        return self.make_source().module

    def make_source(self) -> ModelSource:
        """Return the model as formats write it, in the precision of the run.

        Raises UserError if the method or the model has no module, or if its code is not trusted.
        """
        recipe, params = self.view.recipe, self.view.get_params(self.row, self.device or 0)
        with loading.guard_imports("the result", self.trust):
            scenario = self.get_point().scenario
            made = models.build(scenario.model, self.input_shape, recipe["classes"], scenario.loss)
            model = get_view_model(build_algorithm(scenario, made), self.name)
            build_fn, parts = (
                partial(build_module, model, recipe),
                split_parts(model, recipe, params),
            )
            return ModelSource(build_fn(params), self.input_shape, params, list(parts), build_fn)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return tuple(self.view.recipe["input_shape"])

    def get_point(self) -> Point:
        """Return the point of the sweep that the model was trained at."""
        scenario = load_scenario(restore_tree(self.result.attrs))
        return expand(scenario)[self.index]


def load_model(
    result: Path | str,
    view: str = "global",
    device: int | None = None,
    trial: int = 0,
    trust: bool = False,
    **sel: Any,
) -> nn.Module:
    """Load a trained model as a plain `torch.nn.Module` in eval mode.

    Low-rank weights become thin layers.

    Parameters
    ----------
    result : Path or str
        Result file, or folder of a sweep, of a scenario with `output.save_models: true`.
    view : str, default "global"
        Model of the method: "global", "local", "personal", "mean" or "level0", "level1", ....
    device : int, optional
        Device whose model is loaded, if each device has its own.
    trial : int, default 0
        Number of the trial.
    trust : bool, default False
        Whether the file may import and run a user-defined model (`module:callable`). Use it only
        for files of people whose programs you would run.
    **sel : Any
        Coordinates `name=value` that select a point of a sweep.

    Returns
    -------
    torch.nn.Module
        Module from samples [batch, *input_shape] to scores [batch, classes]. The scores of a
        mixture are log-probabilities.

    Raises
    ------
    UserError
        If there is no such model, it has no plain PyTorch module, or it needs code that `trust`
        does not allow.
    """
    return open_models(Path(result), sel, trial, view, device, trust).build_module()


def open_models(
    result: Path,
    sel: Mapping[str, Any],
    trial: int,
    view: str,
    device: int | None,
    trust: bool = False,
) -> SelectedModel:
    """Find the selected model; it is read from disk where it is used.

    Raises UserError, which names the models of the result, if it is not found.
    """
    at, index = _select_point(open_results(result), sel)
    found, others = None, set[int]()
    for path in trained.list_model_files(result):
        kept, head = trained.read(path)
        if head["scenario_hash"] != at.attrs["scenario_hash"]:
            raise UserError(
                f"{path}: belongs to another scenario than {result}; delete the result, and run "
                "its scenario again"
            )
        if (index, trial) in kept.rows:
            found = kept
            break
        others |= {number for point, number in kept.rows if point == index}
    if found is None and others:
        raise UserError(f"trial {trial}: no models of it; there are trials {sorted(others)}")
    if found is None:
        raise UserError(
            f"{result}: no trained models beside it; run its scenario again with "
            "output.save_models: true (--set output.save_models=true)"
        )
    if view not in found.views:
        raise make_unknown_name_error(f"view {view}", "a model of this method", view, found.views)
    one = found.views[view]
    if one.devices is None and device is not None:
        raise UserError(f"device {device}: the {view} model belongs to no device; leave it out")
    if one.devices is not None and (device is None or not 0 <= device < one.devices):
        got = "each device has one" if device is None else f"no device {device}"
        raise UserError(f"view {view}: {got}; choose a device from 0 to {one.devices - 1}")
    row = found.rows.index((index, trial))
    return SelectedModel(at.sel(trial=trial), index, trial, view, one, row, device, trust)


def _select_point(result: xr.Dataset, sel: Mapping[str, Any]) -> tuple[xr.Dataset, int]:
    """Return the result at a point of the sweep, and the point's number."""
    axes = header.read_axes(result.attrs)
    dims, shape = [axis["dim"] for axis in axes], [axis["size"] for axis in axes]
    if any(result.sizes.get(dim, 1) != size for dim, size in zip(dims, shape, strict=True)):
        raise UserError("this result holds a part of its sweep only; give the whole result")
    number = xr.DataArray(np.arange(math.prod(shape)).reshape(shape), dims=dims)
    at = result.assign(point_number=number)
    for name, value in sel.items():
        at = pick(at, name, value)
    for dim in dims:
        if at.sizes.get(dim, 1) > 1:
            raise UserError(
                f"the models also depend on {dim} ({format_values(at[dim])}); pick one with "
                f"--sel {dim}={format_value(at[dim].values[0])}"
            )
        if dim in at.dims:
            at = at.isel({dim: 0})
    return at.drop_vars("point_number"), int(at["point_number"])


def load_samples(selected: SelectedModel) -> tuple[np.ndarray, np.ndarray]:
    """Return x [n, *input_shape] float32 and y [n], the test samples of the model in the run.

    A device's model is tested on the device's own test samples, if it has such.
    """
    point = selected.get_point()
    training, data = point.scenario.training, data_sets.load_cached(point.scenario.data)
    own = None
    if selected.device is not None or not len(data.y_test):
        own = assemble([point], [selected.trial]).samples.client_test
    if own is None:
        x, y = data.x_test[: training.eval_samples], data.y_test[: training.eval_samples]
        return x.astype(np.float32), y
    cells = slice(None) if selected.device is None else slice(selected.device, selected.device + 1)
    pairs = zip(own.index[cells], own.count[cells].tolist(), strict=True)
    place = torch.cat([index[:count] for index, count in pairs])
    return own.x[place].cpu().float().numpy(), own.y[place].cpu().numpy()


class Exported(NamedTuple):
    """Outcome of `export`.

    parameters, macs: of the module. file_bytes: of all files. accuracies: runtime -> accuracy on
    the test samples, NaN without classes; empty without a check. fault: the difference of the
    scores that the check found, or None.
    """

    path: Path
    parameters: int
    macs: int
    file_bytes: int
    accuracies: dict[str, float]
    fault: str | None


def export(selected: SelectedModel, target: str, path: Path, check: bool = True) -> Exported:
    """Write the model as a file of another runtime, `target` of FORMATS, in float32.

    With `check`, compare its scores with the module's, if a runtime is known. Raises UserError.
    """
    if target not in FORMATS:
        raise make_unknown_name_error(f"--to {target}", "a format", target, FORMATS)
    name, suffix, write = FORMATS[target]
    if path.suffix != suffix:
        what = f"a file that ends in {suffix}" if suffix else "a folder, without a suffix"
        raise UserError(f"--out {path}: must be the name of {what}")
    with loading.guard_imports("the result", selected.trust):
        source = selected.make_source()
        module = source.module.float()
        run, scored, fault = write(source, path), {}, None
        if check and run is not None:
            x, y = load_samples(selected)
            runs = {"PyTorch": formats.make_run_fn(module), name: run}
            scored = {n: formats.score_samples(one, x, y) for n, one in runs.items()}
            fault = formats.find_difference(*scored.values())
    files = path.iterdir() if path.is_dir() else (path,)
    return Exported(
        path,
        count_numbers(module),
        count_macs(module, torch.zeros(1, *selected.input_shape)),
        sum(one.stat().st_size for one in files),
        {n: one.accuracy for n, one in scored.items()},
        fault and f"{name}: {fault}",
    )
