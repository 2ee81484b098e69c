"""The trained models of a stack, in the form in which they are tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.core.contracts import View, take_rows
from otafl.core.errors import UserError
from otafl.engine.engine import Engine
from otafl.evaluation.scoring import BatchStatistics, FineTuner
from otafl.models.base import Model
from otafl.models.modules import Recipe, build_module, select_params
from otafl.results.models import TrainedModels, TrainedView
from otafl.scenario import Point

PROBES = 4
"""Number of samples on which a module is compared with the trained model before it is saved."""


@torch.inference_mode()
def collect(
    engine: Engine, points: Sequence[Point], trials: Sequence[int], round: int
) -> TrainedModels:
    """Return the models of a stack after `round` rounds, on the host.

    points, trials: those that the engine was assembled from.
    """
    parts = engine.parts
    rows = [(point.index, trial) for point in points for trial in trials]
    tested = parts.algorithm.build_views(engine.server, engine.devices.get_all())
    views = {n: one if one.saved_fn is None else one.saved_fn() for n, one in tested.items()}
    statistics = BatchStatistics(parts.samples.training_data, parts.scenario.training.norm_samples)
    prepared = {id(view): _prepare_view(view, statistics, engine, round) for view in views.values()}
    out = {}
    for name, given in views.items():
        view, data = prepared[id(given)], parts.samples.data
        recipe = Recipe(
            name=parts.scenario.model.name,
            input_shape=list(data.input_shape),
            classes=data.classes,
            together=view.ensemble,
            refused=None,
        )
        params, model = select_params(view.params), get_view_model(parts.algorithm, name)
        probes = parts.samples.training_data.x[:PROBES].cpu()
        recipe["refused"] = _find_refusal(model, recipe, view, probes)
        servers = parts.topology.rows.servers
        devices = servers if servers > 1 else None  # each server's model counts as a device's
        if view.owner == "device":
            devices = servers * engine.num_devices
        blocks = {n: _store_block(b.unflatten(0, (len(rows), -1))) for n, b in params.items()}
        out[name] = TrainedView(recipe, blocks, devices)
    return TrainedModels(rows, out)


def get_view_model(algorithm: Algorithm, view: str) -> Model:
    """Return the model of a view's parameters: the method's, or that of a level."""
    level = view.removeprefix("level")
    network = algorithm.levels[int(level)].network if level.isdigit() else None
    return network or algorithm.model


def _prepare_view(view: View, statistics: BatchStatistics, engine: Engine, round: int) -> View:
    """Return the view as it is tested: with batch normalisation statistics, and fine-tuned."""
    view = statistics.add_statistics(view)
    if view.fine_tune is None:
        return view
    own, loss = engine.parts.samples.training_data, engine.parts.scenario.loss
    tune = FineTuner(loss, view.predict_fn, (view.fine_tune,), own, round)
    trained = []
    for cells in torch.arange(engine.num_trials * engine.num_devices).split(engine.num_devices):
        cells = cells.to(engine.sample_share.device)
        owner = cells if view.owner == "device" else cells // engine.num_devices
        trained.append(tune({n: take_rows(b, owner) for n, b in view.params.items()}, cells))
    params = {name: torch.cat([one[name] for one in trained]) for name in view.params}
    return replace(view, params=params, owner="device", fine_tune=None)


def _store_block(block: Tensor) -> Tensor:
    """Copy a block [rows, K, *shape] to the host, [rows, 1, *shape] if a row's models share it."""
    if all(torch.equal(row, row[:1].expand_as(row)) for row in block):
        block = block[:, :1]
    return torch.empty(block.shape, dtype=block.dtype).copy_(block)


def _find_refusal(model: Model, recipe: Recipe, view: View, x: Tensor) -> str | None:
    """Return the reason if the module of a model does not score as the view does.

    A method with a prediction of its own must not be exported as a different model.
    """
    finite = [block.flatten(1).isfinite().all(1) for block in view.params.values()]
    rows = torch.stack(finite).all(0).nonzero()[:1, 0]
    if not len(rows):
        return None  # all have diverged
    params = {name: take_rows(block, rows).cpu() for name, block in view.params.items()}
    wanted = view.predict_fn(params, x[None])[0]
    try:
        got = build_module(model, recipe, {name: block[0] for name, block in params.items()})(x)
    except UserError as error:
        return str(error)
    except Exception as error:  # in a user-defined module: no reason to lose the run
        return f"model.name: no PyTorch module can be made of it: {error}"
    if torch.allclose(got, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max())):
        return None
    return (
        "algorithm.name: this method predicts by more than a model's parameters, and has no plain "
        "PyTorch module"
    )
