"""Extraction of a trained model from a result, as a PyTorch module or an export.

The accuracy of an export is checked.
"""

from __future__ import annotations

import contextlib
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
from otafl.evaluation.evaluation import PREFIX
from otafl.evaluation.trained_models import get_view_model
from otafl.exporting import formats, litert, measure
from otafl.exporting.measure import Latency, ModelSource, Run, Scored, measure_latencies
from otafl.models.base import Model
from otafl.models.modules import Params, build_module, count_macs, count_numbers, split_parts
from otafl.results import header
from otafl.results import models as trained
from otafl.results.coordinates import format_value, format_values, pick
from otafl.results.end_values import select_final
from otafl.results.files import open_results
from otafl.scenario import Point, expand, load_scenario, restore_tree
from otafl.user_code import loading

ACCURACY_TOLERANCE = 0.01
"""Difference from the accuracy in the result, since rounding may exchange nearly equal scores."""


class Format(NamedTuple):
    """A format of exported models: what runs its files, their suffix, and how they are written."""

    runtime: str
    suffix: str
    write: Callable[[ModelSource, Path], Run]


FORMATS = {
    "onnx": Format("onnxruntime", ".onnx", formats.write_onnx),
    "litert": Format("LiteRT", ".tflite", litert.write_litert),
    "pytorch": Format("torch.export", ".pt2", formats.write_pytorch),
    "safetensors": Format("safetensors", ".safetensors", formats.write_safetensors),
    "peft": Format("adapters on their base", "", formats.write_peft),
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
        """Return the model as a module in eval mode.

        Raises UserError if the method or the model has none, or if its code is not trusted.
        """
        with self.guard_imports():
            return build_module(self._make_model(), self.view.recipe, self._get_params())

    def make_source(self) -> ModelSource:
        """Return the model as formats write it; raises UserError as `build_module`."""
        with self.guard_imports():
            model, recipe, params = self._make_model(), self.view.recipe, self._get_params()
            build_fn = partial(build_module, model, recipe)
            parts = list(split_parts(model, recipe, params))
            module = build_fn(params).float()
        return ModelSource(module, self.input_shape, params, parts, build_fn)

    def _make_model(self) -> Model:
        """Make the model of the parameters again, from the scenario."""
        scenario, recipe = self.get_point().scenario, self.view.recipe
        model = models.build(scenario.model, self.input_shape, recipe["classes"], scenario.loss)
        return get_view_model(build_algorithm(scenario, model), self.name)

    def _get_params(self) -> Params:
        """Return the parameters [*shape] of the model."""
        return self.view.get_params(self.row, self.device or 0)

    def guard_imports(self) -> contextlib.AbstractContextManager[None]:
        """Import what the result names only if it is trusted, within it."""
        return loading.guard_imports("the result", self.trust)

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


def read_recorded_accuracy(selected: SelectedModel) -> float | None:
    """Return the accuracy on `load_samples` at the trial's end, as recorded in the result.

    None if the result has no such accuracy, and for a trial that diverged.
    """
    result, name, device = selected.result, selected.name, selected.device
    if np.isfinite(result["diverged_round"]):
        return None
    if name not in PREFIX:
        names, where = ["level_test_accuracy"], {"level": int(name.removeprefix("level"))}
    elif device is None:
        names, where = [f"{PREFIX[name]}test_accuracy"], {}
    else:
        prefix, where = f"device_{PREFIX[name]}", {"device": device}
        names = [f"{prefix}own_test_accuracy", f"{prefix}test_accuracy"]
    for one in names:
        if one in result:
            value = float(select_final(result, one).isel(where))
            return value if math.isfinite(value) else None
    return None


class RuntimeResult(NamedTuple):
    """One runtime's row of the table. file_bytes: None for a module in memory."""

    runtime: str
    file_bytes: int | None
    latency: Latency
    accuracy: float | None


class Exported(NamedTuple):
    """Outcome of `export`.

    parameters, macs: of the module. recorded: accuracy in the result. faults: the deviations that
    the check found.
    """

    path: Path
    parameters: int
    macs: int
    lines: list[RuntimeResult]
    recorded: float | None
    faults: list[str]


def export(selected: SelectedModel, target: str, path: Path, check: bool = True) -> Exported:
    """Write the model as a file of another runtime, `target` of FORMATS, in float32.

    With `check`, compare scores and accuracy with the module's and the recorded one. Raises
    UserError.
    """
    if target not in FORMATS:
        raise make_unknown_name_error(f"--to {target}", "a format", target, FORMATS)
    name, suffix, write = FORMATS[target]
    if path.suffix != suffix:
        what = f"a file that ends in {suffix}" if suffix else "a folder, without a suffix"
        raise UserError(f"--out {path}: must be the name of {what}")
    x, y = np.zeros((1, *selected.input_shape), np.float32), None
    with selected.guard_imports():
        source = selected.make_source()
        runs = {"PyTorch": measure.make_run_fn(source.module), name: write(source, path)}
        recorded = read_recorded_accuracy(selected) if check else None
        if check:
            x, y = load_samples(selected)
    scored = {} if y is None else {n: measure.score_samples(run, x, y) for n, run in runs.items()}
    faults = _list_faults(scored, recorded) if check else []
    files = path.iterdir() if path.is_dir() else (path,)
    sizes, times = {name: sum(one.stat().st_size for one in files)}, measure_latencies(runs, x[:1])
    lines = [
        RuntimeResult(n, sizes.get(n), times[n], scored[n].accuracy if check else None)
        for n in runs
    ]
    work = count_macs(source.module, torch.from_numpy(x[:1]))
    return Exported(path, count_numbers(source.module), work, lines, recorded, faults)


def _list_faults(scored: Mapping[str, Scored], was: float | None) -> list[str]:
    """List the differences between the module, the other runtime and the result."""
    (_, before), (name, after) = scored.items()
    out = []
    wrong = measure.find_difference(before, after)
    if wrong is not None:
        out.append(f"{name}: {wrong}")
    if was is not None and not abs(before.accuracy - was) <= ACCURACY_TOLERANCE:
        out.append(
            f"PyTorch: the accuracy is {before.accuracy:.6f}, but the result says {was:.6f}; "
            "are these the same data?"
        )
    return out
