r"""Fine-tuning by low-rank adapters on a frozen model (LoRA), in the modes of the literature.

The model starts from `model.start`, and its weights stay frozen: no device sends them, and they are
stored once. A device trains thin factors A and B of an adapter for each target, by SGD, and the
head. What it sends depends on the mode. A coherent sum gives the server a mean of what is sent.

both       A and B, averaged one by one (FedIT). The product of the means is not the mean of the
           products: it lacks the covariance of B and A over devices.
freeze_a   B only; A is common and fixed (FFA-LoRA).
alternate  B in even rounds, A in odd ones (RoLoRA). In round 0 the gradient by A is zero, as B = 0.
square     R [r, r] between common orthonormal B and A, the singular vectors of a gradient on the
           samples that the server has pretrained on (Fed-SB), or else of the weight (LoRA-XS).
tangent    Tangent vectors at the best rank-r part of the weight, as in FedRLR+. A product of zero
           has no tangent space of rank r.
share_a    A; B stays personal (FedSA-LoRA).
residual   A and B one by one; the server adds mean(B A) - mean(B) mean(A) to the frozen weight,
           which it broadcasts (FedEx-LoRA). It needs each update.

References
----------
Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", ICLR.
Zhang et al. 2024, "Towards Building the Federated GPT: Federated Instruction Tuning" (FedIT).
Sun et al. 2024, "Improving LoRA in Privacy-preserving Federated Learning" (FFA-LoRA), ICLR.
Chen et al. 2024, "Robust Federated Finetuning of LLMs via Alternating Optimization of LoRA".
Guo et al. 2025, "Selective Aggregation for Low-Rank Adaptation in Federated Learning" (FedSA-LoRA).
Singhal et al. 2025, "FedEx-LoRA"; "Fed-SB: A Silver Bullet for Extreme Communication Efficiency".
Cho et al. 2024, "Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms.adapters import lora_factors
from otafl.algorithms.adapters.adapters import (
    AdaptedLayer,
    AdaptedModel,
    Factors,
    compute_pretraining_gradients,
    compute_product,
    count_adapter_flops,
    select_targets,
    to_matrix,
)
from otafl.algorithms.adapters.lora_factors import BASE, Aggregate, Mode, PowerSplit, get_roles
from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome, PayloadKind, Views
from otafl.algorithms.parameters import compute_step_size, draw_start, make_view, run_steps
from otafl.algorithms.submodel_training import check_descending, select_by_level
from otafl.core import contracts as c
from otafl.core import registry
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, descend_, differentiate

NORM = "product norm"
"""Name of the tensor of a device's weight."""

Rank = Annotated[int, Field(ge=1)]


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
    levels: (
        Annotated[tuple[Rank, ...], Field(min_length=1), AfterValidator(check_descending)] | None
    ) = None
    """ranks of the capacity levels, from the largest, which is the rank; one rank for all devices
    if not given"""
    alpha: float | None = Field(None, gt=0)
    """scale alpha of the adapters, multiplied by alpha / rank; the rank itself if not given"""
    targets: tuple[str, ...] | None = None
    """weights with adapters, by name or by a part of the name between dots; if not given, query and
    value of attention, or else all linear and convolution layers except the head; none, [], to
    train the head alone"""
    head: Literal["trained", "frozen"] = "trained"
    """the last layer: trained, and sent with all its coordinates; or frozen, as in the start"""
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
        if self.levels is not None and self.mode not in ("both", "freeze_a"):
            yield f"levels needs mode: both or freeze_a, got mode: {self.mode}; leave levels out"
        if self.levels is not None and self.rank != self.levels[0]:
            yield f"rank: got {self.rank}; with these levels use rank: {self.levels[0]}"
        if self.targets == ():
            if self.head == "frozen":
                yield "targets: got [] with head: frozen, which trains nothing; use head: trained"
            of_adapters = ("mode", "levels", "aggregate", "weights", "power_split")
            for name in (one for one in of_adapters if not self.is_default(one)):
                yield f"{name}: is for adapters, and targets: [] has none; leave {name} out"
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
        sends_pair = len(get_roles(self.mode, 0).sent) == 2 and self.aggregate != "dense"
        if self.power_split != "symbol" and not sends_pair:
            yield (
                f"power_split: {self.power_split} divides energy between two factors, which these "
                "settings do not send together; use power_split: symbol"
            )

    @property
    def needs_each(self) -> bool:
        """Whether the server needs the update of each device."""
        return self.mode == "residual" or self.aggregate in ("stacking", "svd")

    @property
    def changes_base(self) -> bool:
        """Whether the server adds to the frozen weights."""
        return self.mode == "residual" or self.aggregate == "stacking"

    def check(self, scenario: Any) -> Iterator[Problem]:
        """Yield conflicts of a mode with the rest of the scenario."""
        devices, private = scenario.devices, scenario.privacy.clip is not None
        if self.mode == "alternate":
            text = "mode 'alternate' sends A and B in turn, so that payloads change from round to "
            if devices.protocol.goes_on:
                name = devices.protocol.name
                said = f"{text}round, and late devices of protocol '{name}' would mix them; use "
                yield make_problem(f"{said}protocol: rounds", "algorithm.mode", "devices.protocol")
            if scenario.codec.name != "identity":
                said = f"{text}round, and a codec needs the same shapes in all; use codec: identity"
                yield make_problem(said, "algorithm.mode", "codec")
        transport = registry.load_component("transport", scenario.transport.name)
        if self.power_split != "symbol" and not transport.supports_power_factors:
            fitting = registry.list_fitting("transport", lambda one: one.supports_power_factors)
            text = (
                f"'{self.power_split}' needs devices that set the power of each group; use "
                f"transport: {' or '.join(fitting)}, or power_split: symbol"
            )
            yield make_problem(text, "algorithm.power_split", "transport")
        if self.power_split in ("norm", "laser") and private:
            text = f"'{self.power_split}' sets powers by the norms of a device's update, which the "
            text += "noise does not hide; use symbol or equal"
            yield make_problem(text, "algorithm.power_split", "privacy.clip")
        if self.weights == "norm" and scenario.robust.is_active:
            text = "'norm' divides two sums, and a rule makes no robust mean of them; use samples"
            yield make_problem(text, "algorithm.weights", "robust")
        if self.weights == "norm" and private:
            text = "'norm' sends norms, which the noise that hides data covers; use samples"
            yield make_problem(text, "algorithm.weights", "privacy.clip")


class Lora(Algorithm):
    r"""Low-rank adaptation.

    The server's tensors are "A.W" [S, r, M] and "B.W" [S, N, r] for each target W of M inputs and N
    outputs, those that the mode shares; "R.W" [S, r, r] in mode square, and "U.W", "S.W" and "V.W"
    in mode tangent; "base.W" [S, M, N] where the server corrects the frozen weight; and the head's
    parameters. The devices' tensors are "B.W" in mode share_a.

    Whatever the uplink does, devices keep B of mode share_a: it is never sent.

    Notes
    -----
    With x a sample's input of a layer as a column,

    .. math::

        y = W_0 x + \frac{\alpha}{r} B A x, \quad A \leftarrow A - \eta \nabla_A f, \quad
        B \leftarrow B - \eta \nabla_B f

    Examples
    --------
    `scenarios/lora.yaml` compares the modes that a coherent sum can carry.
    """

    is_per_device = True

    class Settings(LoraSettings):
        small: ClassVar[Mapping[str, Any]] = {"rank": 2}

        name: Literal["lora"] = "lora"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        head = model.head if settings.head == "trained" else ()
        sides = select_targets(model, settings.targets, head)
        self.head = tuple(name for name in head if name not in sides)
        smaller = settings.mode in ("square", "tangent")
        self.layers = tuple(
            AdaptedLayer(
                name, m, n, min(settings.rank, m, n if smaller else m), model.count_products(name)
            )
            for name, (m, n) in sides.items()
        )
        scale = 1.0 if settings.alpha is None else settings.alpha / settings.rank
        self.adapted = AdaptedModel(model, self.layers, scale)
        self.fixed: c.Tensors = {}
        self.start: Factors = {}  # what mode tangent took from the frozen weights
        self.levels = tuple(self._build_level(rank) for rank in settings.levels or ())

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind("each" if settings.needs_each else "mean")

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the adapters at their start, and keep the model's start as backbone."""
        params = draw_start(self.model, streams)
        frozen, roles, layers = params, get_roles(self.settings.mode, 0), self.layers
        if self.settings.mode == "tangent":
            tensors, frozen = lora_factors.split_weights(layers, params)
            self.start = lora_factors.compose_tangents(layers, tensors)
        elif self.settings.mode == "square":
            samples, weights = self.model.start_samples, params
            if samples is not None:
                weights = compute_pretraining_gradients(self.model, params, *samples)
            tensors = lora_factors.find_bases(layers, weights)
        else:
            tensors = lora_factors.draw_factors(layers, streams)
        shared, self.fixed, own = (
            lora_factors.select(tensors, parts, layers)
            for parts in (roles.shared, roles.fixed, roles.own)
        )
        if self.settings.changes_base:
            for name in (layer.weight for layer in layers):
                shared[f"{BASE}.{name}"] = torch.zeros_like(to_matrix(params[name]))
        self.adapted.freeze({n: block for n, block in frozen.items() if n not in self.head})
        head = {name: params[name] for name in self.head}
        return shared | head, {name: block[:, None] for name, block in own.items()}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        received, trial = broadcast.tensors, context.cohort.trial
        roles = get_roles(self.settings.mode, context.round)
        thin = lora_factors.select(received, roles.shared, self.layers) | devices
        thin |= {name: block[trial] for name, block in self.fixed.items()}
        thin = self._truncate(thin, context.cohort)
        if self.settings.mode == "tangent":
            thin |= lora_factors.start_coordinates(self.layers, thin)
        start = lora_factors.select(thin, roles.trained, self.layers)
        start |= {name: received[name] for name in self.head}
        with torch.inference_mode(False), torch.no_grad():  # autograd saves no inference tensors
            others = {name: block.clone() for name, block in thin.items() if name not in start}
        changes = self._get_changes(received)
        objective = self.adapted.make_objective(
            trial, lambda leaves: self._compose(others | leaves), changes
        )
        params = {name: block.clone() for name, block in start.items()}
        rate = compute_step_size(context.hyper, context.round)[trial]

        def take_step_(batch: c.Batch) -> Tensor:
            loss, gradients = differentiate(objective, params, batch)
            if self.settings.mode == "tangent":
                lora_factors.project_gradients_(self.layers, thin, gradients)
            descend_(params, gradients, rate)
            return loss

        loss = run_steps(context, take_step_)
        own = lora_factors.select(params, roles.own, self.layers)
        return own, self._build_payload(thin | start, params, context), loss

    def _truncate(self, factors: c.Tensors, cohort: c.Cohort) -> c.Tensors:
        """Return the factors [n, *shape] of rows, with zeros beyond their ranks."""
        if not self.levels:
            return factors
        ranks = select_by_level(self.settings.levels, cohort, torch.int64)
        return lora_factors.truncate_ranks(factors, ranks)

    def _get_changes(self, tensors: c.Tensors) -> c.Tensors:
        """Return what the server has added to the frozen weights, by the name of the weight."""
        start = f"{BASE}."
        return {n.removeprefix(start): b for n, b in tensors.items() if n.startswith(start)}

    def _compose(self, tensors: c.Tensors) -> Factors:
        """Return A and B of each layer."""
        if self.settings.mode == "tangent":
            return lora_factors.compose_tangents(self.layers, tensors)
        return lora_factors.compose_factors(self.layers, tensors)

    def _build_payload(self, start: c.Tensors, new: c.Tensors, context: c.Context) -> c.Payload:
        """Build the groups of factors, of their weights, and of the head, from trained tensors."""
        change = {name: block - start[name] for name, block in new.items()}
        head = (c.Group({name: change[name] for name in self.head}),) if self.head else ()
        if not self.layers:
            return head
        if self.settings.aggregate == "dense":
            old, moved = self._compose(start), self._compose(start | new)
            increments = {
                f"product.{n}": compute_product(*moved[n]) - compute_product(*old[n]) for n in old
            }
            return (c.Group(increments), *head)
        sent = get_roles(self.settings.mode, context.round).sent
        parts = [lora_factors.select(change, part, self.layers) for part in sent]
        norm = None
        if self.settings.weights == "norm":
            norm = lora_factors.compute_product_norms(self.layers, start | new)
            parts = [{n: b * norm[:, None, None] for n, b in part.items()} for part in parts]
        powers = lora_factors.compute_power_factors(parts, self.settings.power_split)
        known: list[Tensor | None] = [None] * len(sent)
        if self.levels:
            ranks = select_by_level(self.settings.levels, context.cohort, torch.int64)
            dtype = context.cohort.weight.dtype
            known = [
                lora_factors.compute_known_fraction(self.layers, one, ranks, dtype) for one in sent
            ]
        each = zip(parts, known, powers, strict=True)
        groups = [c.Group(part, known_fraction=k, power_factor=power) for part, k, power in each]
        weights = () if norm is None else (c.Group({NORM: norm[:, None]}),)
        return (*groups, *weights, *head)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Step along the means, or replace factors and frozen weights by means of products."""
        mean = {name: block for group in received.mean for name, block in group.items()}
        moved, step = set(self.head), context.hyper["server_learning_rate"]
        state = dict(server)
        if self.settings.mode == "tangent":
            state |= lora_factors.retract(self.layers, server, mean, step[:, None, None])
        elif self.settings.aggregate == "dense" or self.settings.needs_each:
            cohort = context.cohort.transmitters
            factors = lora_factors.select(server, "AB", self.layers)
            rows = self._truncate({n: b[cohort.trial] for n, b in factors.items()}, cohort)
            new, changes = lora_factors.aggregate_products(
                self.layers, rows, received, self.settings.aggregate, context
            )
            state |= new
            for name in changes:
                base = f"{BASE}.{name}"
                state[base] = server[base] + self.adapted.scale * changes[name]
        else:
            factors = lora_factors.select(
                mean, get_roles(self.settings.mode, context.round).sent, self.layers
            )
            moved |= set(factors)
            if self.settings.weights == "norm":
                total = mean[NORM][:, :, None]
                for name, block in factors.items():
                    mean[name] = torch.where(total > 0, block / total.clamp_min(1e-30), 0.0)
        for name in moved:
            each = c.unsqueeze_like(step, server[name])
            state[name] = torch.addcmul(server[name], each, mean[name])
        return state

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the global model with merged adapters, or in mode share_a each device's own."""
        tensors, trial = self._join_state(server, devices)
        if self.settings.mode == "share_a":
            name, view = "personal", c.View(tensors | {"trial": trial}, self._predict, "device")
        else:
            name, view = "global", make_view(self.model, self._merge(tensors, trial))
        return {name: replace(view, saved_fn=lambda: self._build_saved_view(server, devices))}

    def _predict(self, tensors: c.Tensors, x: Tensor) -> Tensor:
        return self.model.logits(self._merge(tensors, tensors["trial"]), x)

    def _build_saved_view(self, server: c.Tensors, devices: c.Tensors) -> c.View:
        """Return merged models, of each device in mode share_a, with the weights before merging."""
        tensors, trial = self._join_state(server, devices)
        start = {name: (a[trial], b[trial]) for name, (a, b) in self.start.items()}
        before = self._merge(tensors, trial, start)
        base = {f"{BASE}.{layer.weight}": before[layer.weight] for layer in self.layers}

        def predict(tensors: c.Tensors, x: Tensor) -> Tensor:
            return self.model.logits({n: b for n, b in tensors.items() if n not in base}, x)

        merged = self._merge(tensors, trial) | base
        view = make_view(self.model, merged, "device" if devices else "trial")
        return replace(view, predict_fn=predict)

    def _join_state(self, server: c.Tensors, devices: c.Tensors) -> tuple[c.Tensors, Tensor]:
        """Return the tensors of trials, or of devices if these keep some, and each row's trial."""
        first = next(iter(server.values()))
        trial = torch.arange(len(first), device=first.device)
        if not devices:
            return server, trial
        trial = trial.repeat_interleave(next(iter(devices.values())).shape[1])
        own = {name: block.flatten(0, 1) for name, block in devices.items()}
        return {name: block[trial] for name, block in server.items()} | own, trial

    def _merge(self, tensors: c.Tensors, trial: Tensor, at: Factors | None = None) -> c.Tensors:
        """Merge adapters into all parameters [n, *shape] of rows: their own factors, or others."""
        fixed = {name: block[trial] for name, block in self.fixed.items()}
        factors = self._compose(tensors | fixed) if at is None else at
        head = {name: tensors[name] for name in self.head}
        return self.adapted.merge(trial, factors, head, self._get_changes(tensors))

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        return self._count_flops(self.layers, workload)

    def _count_flops(self, layers: tuple[AdaptedLayer, ...], workload: c.Workload) -> np.ndarray:
        """Count the operations of the passes, of the gradients by adapters and head, and of SGD.

        They are the mean of an even and an odd round.
        """
        trained = (get_roles(self.settings.mode, t).trained for t in (0, 1))
        even, odd = (
            count_adapter_flops(self.model, layers, self.head, one, workload) for one in trained
        )
        return 0.5 * (even + odd)

    def _build_level(self, rank: int) -> c.Submodel:
        """Build the model with adapters of a level's rank."""
        layers = tuple(layer._replace(rank=min(layer.rank, rank)) for layer in self.layers)
        shared = get_roles(self.settings.mode, 0).shared
        received = sum(math.prod(self.model.shapes[name]) for name in self.head)
        for layer in layers:
            sides = {"A": layer.inputs, "B": layer.outputs}
            received += layer.rank * sum(sides[part] for part in shared)
            received += layer.inputs * layer.outputs * self.settings.changes_base
        thin = (one.positions * one.rank * (one.inputs + one.outputs) for one in layers)
        return c.Submodel(
            ratio=rank / self.settings.levels[0],
            num_params=received,
            macs=self.model.macs + sum(thin),
            flops_fn=partial(self._count_flops, layers),
            saved_activations=self.model.saved_activations,
        )
