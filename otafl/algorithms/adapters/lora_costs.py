"""Operations of training adapters on a frozen model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otafl.algorithms.adapters.adapters import AdaptedLayer
from otafl.algorithms.adapters.lora_settings import LoraSettings
from otafl.core import contracts as c
from otafl.models.base import Model


def count_adapter_flops(
    model: Model,
    layers: Sequence[AdaptedLayer],
    head: Sequence[str],
    settings: LoraSettings,
    workload: c.Workload,
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
    trained, of_sample, of_step = 0, _count_frozen_passes(model, layers), 0.0
    first = _find_first(model, layers) if layers else None
    for layer in layers:
        trained += _count_trained(layer, settings)
        passes = _count_passes(layer, settings, has_below=layer.weight != first)
        of_sample += layer.positions * passes
        if settings.mode == "square":  # the product B R, and its gradient by R
            of_step += 4.0 * layer.outputs * layer.rank**2
        if settings.mode == "tangent":  # the projection of the gradient by b
            of_step += 4.0 * layer.outputs * layer.rank**2
    for name in head:
        size = math.prod(model.shapes[name])
        trained += size
        if len(model.shapes[name]) >= 2:
            of_sample += 2.0 * model.count_products(name) * size
    of_step += 2.0 * trained
    samples = workload.effective_batch_size
    return workload.num_steps * (of_sample * samples + of_step) + 1.0 * trained


def _find_first(model: Model, layers: Sequence[AdaptedLayer]) -> str:
    """Find the first weight with an adapter, below which no gradient is needed."""
    names = list(model.linear_weights) or list(model.shapes)
    return min((layer.weight for layer in layers), key=names.index)


def _count_passes(layer: AdaptedLayer, settings: LoraSettings, has_below: bool) -> float:
    """Count the operations of an adapter in both passes of a sample, without the frozen weight."""
    m, n, r = layer.inputs, layer.outputs, layer.rank
    forward, by_a, by_b = 2.0 * r * (m + n), 2.0 * r * m, 2.0 * r * n
    inner, by_input = 2.0 * r * n, 2.0 * r * m  # g B, and B A of it
    if settings.mode == "tangent":
        below = 2.0 * r * n + 2.0 * by_input if has_below else 0.0
        return 2.0 * forward + inner + by_a + by_b + below
    if settings.mode in ("freeze_a", "square"):
        return forward + by_b + (inner + by_input if has_below else 0.0)
    if settings.mode == "alternate":  # the mean of a round with A and one with B
        return forward + 0.5 * (by_a + by_b + inner) + (0.5 * inner + by_input) * has_below
    return forward + by_a + by_b + inner + by_input * has_below


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
    if not layers:  # the head alone: a forward pass, and no backward pass below the head
        return 2.0 * model.macs + 1.0 * model.elementwise
    macs = {
        name: model.count_products(name) * inputs * outputs
        for name, (inputs, outputs) in model.linear_weights.items()
    }
    if not macs:  # the model does not tell its layers: all gradients
        return 6.0 * model.macs - 2.0 * model.first_macs + 2.0 * model.elementwise
    names = list(macs)
    first = names.index(_find_first(model, layers))
    above = sum(macs[name] for name in names[first + 1 :])
    others = model.macs - sum(macs.values())  # products of two inputs, as in attention
    return 2.0 * model.macs + 2.0 * above + 4.0 * others + 2.0 * model.elementwise
