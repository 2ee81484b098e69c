"""The models that a stack of trials has at its end, as files: `<sweep>/models/NNNNN.pt` beside
`parts/NNNNN.nc`, `<name>.models/NNNNN.pt` beside `<name>.nc`.

Kept are the views that a method is tested by ("global", "local", "personal", ..., see
`contracts.View`), as they lie: factors as factors, and once what all devices of a trial share. A
model that is tested fine-tuned (Per-FedAvg's personal one) is kept fine-tuned, on the minibatches
of the last round; batch normalisation comes with the statistics that it is tested on. A trial that
stopped, ended or diverged before the last round has the models that it had then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, View, taken
from otafl.core.errors import UserError
from otafl.core.files import written
from otafl.engine.batch_statistics import BatchStatistics
from otafl.engine.fine_tuning import FineTuning
from otafl.models.modules import module_of
from otafl.models.recipes import Recipe, blocks_of, recipe_of
from otafl.results.dataset import versions
from otafl.scenario import Point, Scenario
from otafl.scenario import about as said_of

if TYPE_CHECKING:
    from otafl.engine.engine import Engine

FORMAT = 1
PROBES = 4
"""Samples on which a module is compared with what was trained, before it is kept."""

Row = tuple[int, int]
"""Point of the sweep, trial number."""


@dataclass(frozen=True)
class TrainedView:
    """blocks: name -> [rows, K, *shape], or [rows, 1, *shape] of a trial's model and of what its
    devices share. devices: K, or None for a trial's model."""

    recipe: Recipe
    blocks: Blocks
    devices: int | None

    def one(self, row: int, device: int) -> Blocks:
        """The parameters [*shape] of one model."""
        return {n: b[row, device if b.shape[1] > 1 else 0] for n, b in self.blocks.items()}


@dataclass(frozen=True)
class Trained:
    """Models of points and trials, in the order of `rows`, which all views share."""

    rows: list[Row]
    views: dict[str, TrainedView]


@torch.inference_mode()
def collect(engine: Engine, points: Sequence[Point], trials: Sequence[int], round: int) -> Trained:
    """The models of a stack after so many rounds, on the host. points, trials: what the engine was
    assembled of."""
    parts = engine.parts
    rows = [(point.index, trial) for point in points for trial in trials]
    views = parts.algorithm.views(engine.server, engine.devices.blocks())
    statistics = BatchStatistics(parts.local_data, parts.scenario.training.norm_samples)
    tested = {id(view): _tested(view, statistics, engine, round) for view in views.values()}
    kept: list[Tensor] = []
    out = {}
    for name, given in views.items():
        view, data = tested[id(given)], parts.data
        recipe = recipe_of(
            parts.algorithm,
            name,
            view.params,
            parts.scenario.model,
            data.input_shape,
            data.classes,
        )
        params = blocks_of(recipe, view.params)
        recipe |= _refusal(recipe, view, parts.local_data.x[:PROBES].cpu())
        devices = engine.population if view.owner == "device" else None
        blocks = {n: _stored(b.unflatten(0, (len(rows), -1)), kept) for n, b in params.items()}
        out[name] = TrainedView(recipe, blocks, devices)
    return Trained(rows, out)


def join(several: Sequence[Trained]) -> Trained:
    """Of several batches of points and trials of one stack."""
    first = several[0]
    if len(several) == 1:
        return first
    views = {}
    for name, view in first.views.items():
        each = [one.views[name] for one in several]
        blocks = {}
        for block in view.blocks:
            parts = [one.blocks[block] for one in each]
            most = max(part.shape[1] for part in parts)
            whole = [part.expand(-1, most, *part.shape[2:]) for part in parts]
            blocks[block] = torch.cat(whole)
        views[name] = replace(view, blocks=blocks)
    return Trained([row for one in several for row in one.rows], views)


def write(trained: Trained, path: Path, scenario: Scenario) -> None:
    """Writes plain tensors and plain data (`torch.load` reads them with `weights_only`); the file
    is whole or not there. scenario: the whole sweep's. WriteError where the disk does not allow
    it."""
    views = {
        name: {"recipe": view.recipe, "blocks": view.blocks, "devices": view.devices}
        for name, view in trained.views.items()
    }
    about = {
        "otafl_models": FORMAT,
        "otafl_version": versions()["otafl"],
        **said_of(scenario),
    }
    with written(path) as temporary:
        torch.save(about | {"rows": trained.rows, "views": views}, temporary)


def read(path: Path) -> tuple[Trained, str]:
    """What `write` wrote, and the scenario's hash; blocks are read from disk where they are used.
    UserError for a file that is damaged or not otafl's."""
    try:
        kept: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
        if kept["otafl_models"] > FORMAT:
            raise UserError(
                f"{path}: was written by otafl {kept['otafl_version']} in a format that this one "
                f"({versions()['otafl']}) does not know; update otafl to read it"
            )
        views = {name: TrainedView(**view) for name, view in kept["views"].items()}
        return Trained([(point, trial) for point, trial in kept["rows"]], views), kept[
            "scenario_hash"
        ]
    except UserError:
        raise
    except Exception as error:  # whatever unpickling of damaged bytes may raise
        raise UserError(
            f"{path}: is damaged or holds no models of otafl; delete it and run the same command "
            "again with output.save_models: true"
        ) from error


def folder_of(result: Path) -> Path:
    """Where the models of a result file, or of the folder of a sweep, are."""
    return result / "models" if result.is_dir() else result.with_name(f"{result.stem}.models")


def files_of(result: Path) -> Iterator[Path]:
    """The files of models beside a result, which may be none."""
    yield from sorted(folder_of(result).glob("*.pt"))


def _tested(view: View, statistics: BatchStatistics, engine: Engine, round: int) -> View:
    """The view as it is tested: with statistics of batch normalisations, fine-tuned."""
    view = statistics.added(view)
    if view.fine_tune is None:
        return view
    tune = FineTuning(view.predict, (view.fine_tune,), engine.parts.local_data, round)
    trained = []
    for cells in torch.arange(engine.trials * engine.population).split(engine.population):
        cells = cells.to(engine.parts.share.device)
        owner = cells if view.owner == "device" else cells // engine.population
        trained.append(tune({n: taken(b, owner) for n, b in view.params.items()}, cells))
    params = {name: torch.cat([one[name] for one in trained]) for name in view.params}
    return replace(view, params=params, owner="device", fine_tune=None)


def _stored(block: Tensor, kept: list[Tensor]) -> Tensor:
    """A block [rows, K, *shape] on the host, [rows, 1, *shape] where a row's models share it. One
    that views share is kept once."""
    if all(torch.equal(row, row[:1].expand_as(row)) for row in block):
        block = block[:, :1]
    for known in kept:
        if known.shape == block.shape and torch.equal(known, block.cpu()):
            return known
    kept.append(torch.empty(block.shape, dtype=block.dtype).copy_(block))
    return kept[-1]


def _refusal(recipe: Recipe, view: View, x: Tensor) -> Recipe:
    """{"refused": why} where the module of a model does not score as the view does: a method that
    predicts in a way of its own must not be exported as something else."""
    if "refused" in recipe:
        return {}
    finite = [block.flatten(1).isfinite().all(1) for block in view.params.values()]
    rows = torch.stack(finite).all(0).nonzero()[:1, 0]
    if not len(rows):
        return {}  # all have diverged
    params = {name: taken(block, rows).cpu() for name, block in view.params.items()}
    wanted = view.predict(params, x[None])[0]
    try:
        got = module_of(recipe, {name: block[0] for name, block in params.items()})(x)
    except UserError as error:
        return {"refused": str(error)}
    except Exception as error:  # of a module of the user's own: no reason to lose the run
        return {"refused": f"model.name: no PyTorch module can be made of it: {error}"}
    if torch.allclose(got, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max())):
        return {}
    return {
        "refused": "algorithm.name: this method predicts by more than a model's parameters, and "
        "has no plain PyTorch module"
    }
