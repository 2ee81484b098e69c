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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.adapters import lora_factors, lora_products
from otafl.algorithms.adapters.adapters import (
    AdaptedLayer,
    AdaptedModel,
    Backbone,
    Factors,
    compute_pretraining_gradients,
    compute_product,
    select_targets,
    to_matrix,
    to_weight,
)
from otafl.algorithms.adapters.lora_factors import (
    BASE,
    NORM,
    build_factor_groups,
    get_roles,
    name_tensors,
)
from otafl.algorithms.adapters.lora_settings import LoraSettings, count_adapter_flops
from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.parameters import compute_step_size, draw_start, make_view
from otafl.algorithms.submodel_training import broadcast_to_submodels
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.tensors import get_constant
from otafl.models.base import Model, descend_, differentiate


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
        trains_head = settings.head == "trained"
        head = model.head if trains_head else ()
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
        self.backbone, self.fixed = Backbone({}), dict[str, Tensor]()
        self.levels = self._build_levels(settings.levels or ())

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind("each" if settings.needs_each else "mean")

    @property
    def changes_base(self) -> bool:
        """Whether the server adds to the frozen weights."""
        return self.settings.mode == "residual" or self.settings.aggregate == "stacking"

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the adapters at their start, and keep the model's start as backbone."""
        params = draw_start(self.model, streams)
        head = {name: params[name] for name in self.head}
        if self.settings.mode == "tangent":
            shared, params = lora_factors.split_weights(self.layers, params)
            self.fixed = {f"start.{name}": block for name, block in shared.items()}
            own: c.Tensors = {}
        else:
            tensors = self._start_factors(params, streams)
            roles = get_roles(self.settings.mode, 0)
            shared, self.fixed, own = (
                {n: b for n, b in tensors.items() if n.partition(".")[0] in places}
                for places in (roles.shared, roles.fixed, roles.own)
            )
        if self.changes_base:
            for layer in self.layers:
                block = head[layer.weight] if layer.weight in head else params[layer.weight]
                shared[f"{BASE}.{layer.weight}"] = torch.zeros_like(to_matrix(block))
        frozen = {name: block for name, block in params.items() if name not in head}
        self.backbone = Backbone.store(frozen)
        return shared | head, {name: block[:, None] for name, block in own.items()}

    def _start_factors(self, params: c.Tensors, streams: Streams) -> c.Tensors:
        """Return the factors at their start."""
        if self.settings.mode != "square":
            return lora_factors.draw_factors(self.layers, streams)
        tensors, samples = params, self.model.start_samples
        if samples is not None:
            tensors = compute_pretraining_gradients(self.model, params, *samples)
        matrices = {layer.weight: to_matrix(tensors[layer.weight]) for layer in self.layers}
        return lora_factors.find_bases(self.layers, matrices)

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast what devices train, of the factors only the rows of a device's rank."""
        if self.settings.levels is None:
            return c.Broadcast(server)
        of = [self._count_coordinates(level) for level in range(len(self.settings.levels))]
        return broadcast_to_submodels(server, cohort, of)

    def _count_coordinates(self, capacity_level: int) -> int:
        """Count the coordinates that a device of a level receives."""
        roles, total = get_roles(self.settings.mode, 0), 0
        for layer in self.layers:
            rank = min(self.settings.levels[capacity_level], layer.rank)
            total += rank * sum((layer.inputs, layer.outputs)[part == "B"] for part in roles.shared)
            total += layer.inputs * layer.outputs * self.changes_base
        return total + sum(int(np.prod(self.model.shapes[name])) for name in self.head)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        roles, cohort, work = self._get_roles(context), context.cohort, context.local_data
        thin = self._gather_thin(broadcast.tensors, devices, cohort)
        start = {n: thin[n] for part in roles.trained for n in name_tensors(part, self.layers)}
        start |= {name: broadcast.tensors[name] for name in self.head}
        changes = self._get_changes(broadcast.tensors)
        with torch.inference_mode(False), torch.no_grad():  # autograd saves no inference tensors
            others = {name: block.clone() for name, block in thin.items() if name not in start}
        objective = self.adapted.make_objective(
            self.backbone, cohort, lambda leaves: self._compose(others | leaves), changes
        )
        leaves = {name: block.clone() for name, block in start.items()}
        rate = compute_step_size(context.hyper, context.round)[cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch_loss, gradients = differentiate(objective, leaves, work.draw_batch(step))
            if self.settings.mode == "tangent":
                lora_factors.project_gradients_(self.layers, thin, gradients)
            descend_(leaves, gradients, rate)
            loss += batch_loss
        own = {n: leaves[n] for part in roles.own for n in name_tensors(part, self.layers)}
        return own, self._build_payload(start, leaves, thin, context), loss / work.steps

    def _get_roles(self, context: c.Context) -> lora_factors.Roles:
        """Return the places of the mode's tensors in a round."""
        if self.settings.mode == "tangent":
            return lora_factors.Roles(lora_factors.POINT, trained=("a", "b"), sent=("a", "b"))
        round = int(context.round) if self.settings.mode == "alternate" else 0
        return get_roles(self.settings.mode, round)

    def _gather_thin(self, received: c.Tensors, devices: c.Tensors, cohort: c.Cohort) -> c.Tensors:
        """Return the thin tensors of the rows, with zeros beyond their ranks."""
        thin = {n: b for n, b in received.items() if n not in self.head and not _is_base(n)}
        thin |= devices
        if self.settings.mode == "tangent":
            return thin | lora_factors.make_coordinates(self.layers, thin)
        thin |= {name: block[cohort.trial] for name, block in self.fixed.items()}
        ranks = self._get_ranks(cohort)
        return thin if ranks is None else lora_factors.truncate_ranks(thin, ranks)

    def _get_ranks(self, cohort: c.Cohort) -> Tensor | None:
        """Return the rank of each row, int64 [n]; None if all have the same."""
        levels = self.settings.levels
        if levels is None:
            return None
        like = cohort.capacity_level
        return get_constant(tuple(levels), like.dtype, like.device)[like]

    def _get_changes(self, tensors: c.Tensors) -> c.Tensors:
        """Return what the server has added to the frozen weights, by the name of the weight."""
        return {n.removeprefix(f"{BASE}."): b for n, b in tensors.items() if _is_base(n)}

    def _compose(self, tensors: c.Tensors) -> Factors:
        """Return A and B of each layer."""
        if self.settings.mode == "tangent":
            return lora_factors.compose_tangents(self.layers, tensors)
        return lora_factors.compose_factors(self.layers, tensors)

    def _build_payload(
        self, start: c.Tensors, leaves: c.Tensors, thin: c.Tensors, context: c.Context
    ) -> c.Payload:
        """Build the groups of factors and head from trained tensors and their start."""
        change = {name: block - start[name] for name, block in leaves.items()}
        head = (c.Group({name: change[name] for name in self.head}),) if self.head else ()
        if not self.layers:
            return head
        if self.settings.aggregate == "dense":
            old = self._compose(thin | {n: b for n, b in start.items() if n not in self.head})
            new = self._compose(thin | {n: b for n, b in leaves.items() if n not in self.head})
            increments = {
                f"product.{name}": compute_product(*new[name]) - compute_product(*old[name])
                for name in new
            }
            return (c.Group(increments), *head)
        parts = [
            {name: change[name] for name in name_tensors(part, self.layers)}
            for part in self._get_roles(context).sent
        ]
        weight = None
        if self.settings.weights == "norm":
            weight = lora_factors.compute_product_norms(self.layers, thin | leaves)
        ranks, split = self._get_ranks(context.cohort), self.settings.power_split
        return (*build_factor_groups(self.layers, parts, ranks, split, weight), *head)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Step along the means, or replace factors and frozen weights by means of products."""
        step = context.hyper["server_learning_rate"]
        state = dict(server)
        for name in self.head:
            state[name] = torch.addcmul(
                server[name], c.unsqueeze_like(step, server[name]), received.mean[-1][name]
            )
        if not self.layers:
            return state
        if self.settings.mode == "tangent":
            mean = received.mean[0] | received.mean[1]
            point = lora_factors.retract(self.layers, server, mean, step[:, None, None])
            return state | point
        if self.settings.aggregate == "dense" or self.settings.needs_each:
            cohort = context.cohort.transmitters
            names = [name for part in "AB" for name in name_tensors(part, self.layers)]
            start, ranks = {n: server[n][cohort.trial] for n in names}, self._get_ranks(cohort)
            start = start if ranks is None else lora_factors.truncate_ranks(start, ranks)
            return state | lora_products.aggregate_products(
                self.layers, server, start, received, self.settings, self.adapted.scale, context
            )
        count = len(self._get_roles(context).sent)
        for group in range(count):
            for name, block in received.mean[group].items():
                if self.settings.weights == "norm":
                    total = received.mean[count][NORM][:, :, None]
                    block = torch.where(total > 0, block / total.clamp_min(1e-30), 0.0)
                state[name] = torch.addcmul(server[name], step[:, None, None], block)
        return state

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the global model with merged adapters, or in mode share_a each device's own."""
        if self.settings.mode == "share_a":
            name, view = "personal", self._build_personal_view(server, devices)
        else:
            name, view = "global", make_view(self.model, self._merge(*self._join_state(server, {})))
        return {name: replace(view, saved_fn=lambda: self._build_saved_view(server, devices))}

    def _build_saved_view(self, server: c.Tensors, devices: c.Tensors) -> c.View:
        """Return merged models, of each device in mode share_a, with the weights before merging."""
        owner: Literal["trial", "device"] = "device" if devices else "trial"
        tensors, trial = self._join_state(server, devices)
        merged = self._merge(tensors, trial)
        base = self._get_base(tensors, trial)

        def predict(tensors: c.Tensors, x: Tensor) -> Tensor:
            return self.model.logits({n: b for n, b in tensors.items() if n not in base}, x)

        moments = make_view(self.model, {}).moments_fn
        return c.View(merged | base, predict, owner, moments_fn=moments)

    def _get_base(self, tensors: c.Tensors, trial: Tensor) -> c.Tensors:
        """Return the weights "base.W" [n, *shape] to which the adapters of rows are added."""
        changes, base = self._get_changes(tensors), {}
        start: Factors = {}
        if self.settings.mode == "tangent":
            parts = {n.removeprefix("start."): b[trial] for n, b in self.fixed.items()}
            start = lora_factors.compose_tangents(self.layers, parts)
        for layer in self.layers:
            name, shape = layer.weight, self.model.shapes[layer.weight]
            block = self.backbone.gather(name, trial)
            if name in changes:
                block = block + to_weight(changes[name], shape)
            if name in start:
                block = block + to_weight(compute_product(*start[name]), shape)
            base[f"{BASE}.{name}"] = block
        return base

    def _join_state(self, server: c.Tensors, devices: c.Tensors) -> tuple[c.Tensors, Tensor]:
        """Return the tensors of each trial, or of each device if these keep some, and the trials.

        Parameters
        ----------
        server, devices : dict of str to Tensor [S, *shape], [S, M, *shape]
            State of the server and of devices.

        Returns
        -------
        dict of str to Tensor [S or S M, *shape]
            Tensors.
        Tensor, int64 [S or S M]
            Trial of each row.
        """
        first = next(iter(server.values()))
        trial = torch.arange(len(first), device=first.device)
        if not devices:
            return server, trial
        trial = trial.repeat_interleave(next(iter(devices.values())).shape[1])
        own = {name: block.flatten(0, 1) for name, block in devices.items()}
        return {name: block[trial] for name, block in server.items()} | own, trial

    def _merge(self, tensors: c.Tensors, trial: Tensor) -> c.Tensors:
        """Merge the adapters of rows into all parameters, [n, *shape]."""
        thin = tensors | {name: block[trial] for name, block in self.fixed.items()}
        head = {name: tensors[name] for name in self.head}
        changes = self._get_changes(tensors)
        return self.adapted.merge(self.backbone, trial, self._compose(thin), head, changes)

    def _build_personal_view(self, server: c.Tensors, devices: c.Tensors) -> c.View:
        """Build the view of the server's A and head with each device's B."""
        own, trial = self._join_state(server, devices)

        def predict(tensors: c.Tensors, x: Tensor) -> Tensor:
            return self.model.logits(self._merge(tensors, tensors["trial"]), x)

        return c.View(own | {"trial": trial}, predict, "device")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the passes, of the gradients by adapters and head, and of SGD."""
        return self._count_level_flops(0, workload)

    def _count_level_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        layers = self._get_level_layers(capacity_level)
        return count_adapter_flops(self.model, layers, self.head, self.settings, workload)

    def _get_level_layers(self, capacity_level: int) -> tuple[AdaptedLayer, ...]:
        """Return the layers at the rank of a level."""
        levels = self.settings.levels
        if levels is None:
            return self.layers
        return tuple(
            layer._replace(rank=min(layer.rank, levels[capacity_level])) for layer in self.layers
        )

    def _build_levels(self, levels: Sequence[int]) -> tuple[c.Submodel, ...]:
        """Build the models with adapters of each level's rank."""
        return tuple(
            c.Submodel(
                ratio=rank / levels[0],
                num_params=self._count_coordinates(level),
                macs=self.model.macs
                + sum(
                    layer.positions * layer.rank * (layer.inputs + layer.outputs)
                    for layer in self._get_level_layers(level)
                ),
                flops_fn=partial(self._count_level_flops, level),
                saved_activations=self.model.saved_activations,
            )
            for level, rank in enumerate(levels)
        )


def _is_base(name: str) -> bool:
    """Return whether a tensor is a sum that the server has added to a frozen weight."""
    return name.startswith(f"{BASE}.")
