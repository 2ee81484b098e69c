"""Settings of fine-tuning by low-rank adapters, what they do not go with, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from otafl.algorithms.adapters.adapters import AdaptedLayer
from otafl.algorithms.base import DecayedSettings
from otafl.core import contracts as c
from otafl.core import registry
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import declare_stackable
from otafl.models.base import Model

Mode = Literal["both", "freeze_a", "alternate", "square", "tangent", "share_a", "residual"]
"""Which factors of the adapters devices train and send."""

Rank = Annotated[int, Field(ge=1)]

Aggregate = Literal["zero_padding", "stacking", "svd", "dense"]
"""Aggregation of adapters at the server."""

EACH_UPDATE = ("stacking", "svd")
"""Aggregations that need the update of each device."""

PowerSplit = Literal["symbol", "equal", "norm", "laser"]
"""Division of a device's energy between A and B."""


class LoraSettings(DecayedSettings):
    """Settings of the adapters."""

    mode: Mode = "both"
    """which factors devices train and send: both; freeze_a, B only; alternate, B in even rounds and
    A in odd ones; square, a matrix r x r between common singular vectors, of a gradient on the
    samples of model.start: pretrained_here, or else of the weight; tangent, coordinates in the
    tangent space at the best low-rank part of a weight; share_a, A, while B stays personal;
    residual, both, and the server corrects the product in the frozen weight"""
    rank: Rank = 4
    """rank r of the adapters, clipped to the number of inputs of a layer, or with mode square or
    tangent to its smaller side; with levels, that of the first level"""
    levels: tuple[Rank, ...] | None = None
    """ranks of the capacity levels, from the largest, which is the rank; one rank for all devices
    if not given"""
    alpha: float | None = Field(None, gt=0)
    """scale alpha of the adapters, which are multiplied by alpha / rank; the rank itself if not
    given"""
    targets: tuple[str, ...] | None = None
    """weights with adapters, by name or by a part of the name between dots; if not given, query and
    value of attention, or else all linear and convolution layers except the head; none, [], to
    train the head alone"""
    head: Literal["trained", "frozen"] = "trained"
    """the last layer: trained, and sent with all its coordinates in every mode; frozen, as in the
    start"""
    aggregate: Aggregate = "zero_padding"
    """aggregation of mode both: zero_padding, means of the factors, zero beyond a device's rank;
    stacking, the mean of products, added to the frozen weight (FLoRA); svd, the mean of products,
    factorised (FlexLoRA); dense, the same from increments of products that devices send"""
    weights: Literal["samples", "norm"] = "samples"
    """weights of the devices with zero_padding: samples, their numbers of samples; norm, these
    times the norm of the device's product (HetLoRA), whose sum costs one more coordinate"""
    power_split: PowerSplit = "symbol"
    """division of a device's energy between the groups of A and B, each with a scale of its own:
    symbol, the same power for every symbol; equal, halves; norm, in proportion to the squared
    norms, as if they had one scale; laser, in proportion to the norms"""
    server_learning_rate: float = declare_stackable(1.0, gt=0)
    """factor of the server's step along the averaged increments; of the head only where products
    replace the factors (mode residual, and aggregate other than zero_padding)"""

    def find_conflicts(self) -> Iterator[str]:
        yield from self._find_rank_conflicts()
        if self.targets == ():
            yield from self._find_conflicts_of_head_alone()
        if self.mode != "both" and self.aggregate != "zero_padding":
            yield (
                f"aggregate: {self.aggregate} needs mode: both, got mode: {self.mode}; leave "
                "aggregate out"
            )
        if self.weights == "norm" and (self.mode, self.aggregate) != ("both", "zero_padding"):
            yield (
                "weights: norm needs mode: both with aggregate: zero_padding; use weights: samples"
            )
        if self.mode == "tangent" and self.alpha is not None:
            yield "alpha scales factors, and mode: tangent has a part of the weight; leave it out"
        if self.power_split != "symbol" and not self.sends_pair:
            yield (
                f"power_split: {self.power_split} divides energy between two factors, which these "
                "settings do not send together; use power_split: symbol"
            )

    def _find_conflicts_of_head_alone(self) -> Iterator[str]:
        """Yield settings of adapters where there are none."""
        if self.head == "frozen":
            yield "targets: got [] with head: frozen, which trains nothing; use head: trained"
        of_adapters = ("mode", "levels", "aggregate", "weights", "power_split")
        for name in (one for one in of_adapters if not self.is_default(one)):
            yield f"{name}: is for adapters, and targets: [] has none; leave {name} out"

    def _find_rank_conflicts(self) -> Iterator[str]:
        """Yield what is wrong with the ranks."""
        if self.levels is None:
            return
        if not self.levels or any(
            a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)
        ):
            yield f"levels must decrease, from the largest rank; got {list(self.levels)}"
        elif self.mode not in ("both", "freeze_a"):
            yield (
                f"levels needs mode: both or freeze_a, got mode: {self.mode}; use one rank for all "
                "devices"
            )
        elif self.rank != self.levels[0]:
            yield f"rank: got {self.rank}; with these levels use rank: {self.levels[0]}"

    @property
    def sends_pair(self) -> bool:
        """Whether devices send two factors in the same round."""
        pair = self.mode in ("both", "residual", "tangent")
        return pair and self.aggregate != "dense"

    @property
    def needs_each(self) -> bool:
        """Whether the server needs the update of each device."""
        return self.mode == "residual" or self.aggregate in EACH_UPDATE

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return conflicts of a mode with the rest of the scenario."""
        if self.mode == "alternate":
            yield from self._find_changing_shapes(scenario)
        transport = registry.load_component("transport", scenario.transport.name)
        if self.power_split != "symbol" and not transport.supports_power_factors:
            fitting = registry.list_fitting("transport", lambda one: one.supports_power_factors)
            text = (
                f"'{self.power_split}' needs devices that set the power of each group; use "
                f"transport: {' or '.join(fitting)}, or power_split: symbol"
            )
            yield make_problem(text, "algorithm.power_split", "transport")
        if self.power_split in ("norm", "laser") and scenario.privacy.clip is not None:
            text = f"'{self.power_split}' sets powers by the norms of a device's update, which the "
            text += "noise does not hide; use symbol or equal"
            yield make_problem(text, "algorithm.power_split", "privacy.clip")
        if self.weights == "norm" and scenario.robust.is_active:
            text = "'norm' divides two sums, and a rule makes no robust mean of them; use samples"
            yield make_problem(text, "algorithm.weights", "robust")
        if self.weights == "norm" and scenario.privacy.clip is not None:
            text = "'norm' sends the devices' norms, which the noise that hides data covers"
            yield make_problem(f"{text}; use samples", "algorithm.weights", "privacy.clip")

    def _find_changing_shapes(self, scenario: Any) -> Iterator[Problem]:
        """Yield parts that need payloads of the same shapes in all rounds."""
        wrong = "sends A and B in turn, so that payloads change from round to round"
        if scenario.devices.protocol.goes_on:
            text = (
                f"mode 'alternate' {wrong}, and late devices of protocol "
                f"'{scenario.devices.protocol.name}' would mix them; use protocol: rounds"
            )
            yield make_problem(text, "algorithm.mode", "devices.protocol")
        if scenario.codec.name != "identity":
            text = (
                f"mode 'alternate' {wrong}, and a codec needs the same shapes in all; use codec: "
                "identity"
            )
            yield make_problem(text, "algorithm.mode", "codec")


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
