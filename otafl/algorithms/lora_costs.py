"""Operations of training adapters on a frozen model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otafl.algorithms.adapters import AdaptedLayer, count_positions
from otafl.algorithms.lora_settings import LoraSettings
from otafl.core.contracts import Workload
from otafl.models.base import Model


def count_adapter_flops(
    model: Model,
    layers: Sequence[AdaptedLayer],
    head: Sequence[str],
    settings: LoraSettings,
    workload: Workload,
) -> np.ndarray:
    """Count the operations of the local work of devices.

    A sample takes a forward pass, a backward pass down to the first adapter without gradients by
    frozen weights, the adapters' own products, and the gradient by the head. A step takes two
    operations for each trained coordinate, and a round one, for the increment.

    Parameters
    ----------
    model : Model
        Model.
    layers : sequence of AdaptedLayer
        Layers with adapters.
    head : sequence of str
        Trained parameters of the head.
    settings : LoraSettings
        Settings, with the mode.
    workload : Workload
        Steps, batch size and samples.

    Returns
    -------
    ndarray
        Operations, in the shape of `workload.num_samples`.
    """
    trained, by_adapters = 0, 0.0
    for layer in layers:
        m, n, r = layer.inputs, layer.outputs, layer.rank
        coordinates = _count_trained(layer, settings)
        trained += coordinates
        # x A^T and B of it, g B and A of it, and the gradients by the trained factors
        by_adapters += layer.positions * (4.0 * r * (m + n) + 2.0 * coordinates)
    heads = sum(math.prod(model.shapes[name]) for name in head)
    weights = sum(math.prod(model.shapes[name]) for name in head if len(model.shapes[name]) >= 2)
    each = _count_frozen_passes(model, layers) + by_adapters + 2.0 * weights
    samples = workload.effective_batch_size
    per_round = 3.0 if settings.mode == "tangent" else 1.0
    elementwise = (2.0 * workload.num_steps + per_round) * (trained + heads)
    return workload.num_steps * each * samples + elementwise


def _count_trained(layer: AdaptedLayer, settings: LoraSettings) -> int:
    """Count the trained coordinates of an adapter; of mode alternate the mean of two rounds."""
    m, n, r = layer.inputs, layer.outputs, layer.rank
    if settings.mode == "freeze_a":
        return r * n
    if settings.mode == "square":
        return r * r
    if settings.mode == "alternate":
        return r * (m + n) // 2
    return r * (m + n)


def _count_frozen_passes(model: Model, layers: Sequence[AdaptedLayer]) -> float:
    """Count the operations of both passes of a sample, without gradients by frozen weights."""
    macs = {
        name: count_positions(model, name) * inputs * outputs
        for name, (inputs, outputs) in model.linear_weights.items()
    }
    if not macs:  # the model does not tell its layers: all gradients
        return 6.0 * model.macs - 2.0 * model.first_macs + 2.0 * model.elementwise
    names = list(macs)
    first = min(names.index(layer.weight) for layer in layers)
    above = sum(macs[name] for name in names[first + 1 :])
    others = model.macs - sum(macs.values())  # products of two inputs, as in attention
    return 2.0 * model.macs + 2.0 * above + 4.0 * others + 2.0 * model.elementwise
