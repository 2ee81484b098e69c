"""Train personal models drawn to CP-factorised ones, of which only the factors travel (TDPFed).

Every device has a dense personal model theta and CP factors A of each layer's weight. A local round
takes s Nesterov steps on f(theta) + lambda/2 |theta - [[A]]|^2 with one minibatch (15), then s'
Adam steps that pull the factors to theta (19), (25). Only factors and biases travel. The server
averages factors (AFM, 20), or tensors that it factors again (ACT, 21-22), or coordinates of the
tensors' changes in the frame of the broadcast factors, which superpose without AFM's ambiguity
(`factorised.cp_aggregation`, not in the paper). The paper's tau is training.local_steps.

Where (17) and the appendix differ, the appendix is right: the factors' gradient is (25). A bias is
sent whole; its centre is the local bias, and Adam trains it on lambda (b - theta_b).

References
----------
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.arrivals import mean_or, not_lost, per_trial
from otafl.algorithms.base import Algorithm, Needs, Outcome, Views
from otafl.algorithms.cp_blocks import CpBlocks
from otafl.algorithms.factor_pull import FactorPull
from otafl.algorithms.low_rank_layers import (
    Ranks,
    compression,
    each_rank,
    layered,
    one_each,
    sides_of,
)
from otafl.algorithms.parameters import START, device_view, named, own
from otafl.algorithms.prox import AHEAD, PENALISED, nesterov_steps
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.problems import Problem
from otafl.core.rng import Streams, family
from otafl.core.settings import stackable
from otafl.factorised import cp, cp_aggregation
from otafl.models import cp_layers
from otafl.models.base import Model, copied, flatten, unflatten
from otafl.models.layered import LayeredModel
from otafl.models.span import difference

TENSOR, RESIDUAL = "tensor", "residual"

GUESS = family("act_start", __name__)


class TDPFed(Algorithm):
    """Keeps server blocks, a trial's factors and biases: "<weight>.A<n>" [S, R, I_n] and "<bias>"
    [S, outputs]; with act "residual" [S], and where they are sent the tensors, "tensor" [S, P].
    Device blocks: "personal.<parameter>" [S, K, *shape] and, as at the server, "local.<block>"."""

    own_state: ClassVar[str] = (
        "the personal model: it is trained for the device, from what it received"
    )

    merges: ClassVar[bool] = False

    model: LayeredModel

    class Settings(settings.Settings):
        small: ClassVar[Mapping[str, Any]] = {"factor_steps": 3, "solver_steps": 2}

        name: Literal["tdpfed"] = "tdpfed"
        rank: Ranks | None = None
        """CP rank R of every layer, or a list with one rank a layer (clipped to what a layer can
        use); by compression_rate if not given"""
        compression_rate: float | None = Field(None, gt=0)
        """weights of a layer over those of its factors: R = round(prod I_n / (rate sum I_n)); 2
        where rank is not given either"""
        aggregation: Literal["afm", "act", "tangent"] = "afm"
        """afm: the mean of the factors (20). act: the mean of the tensors (21), factored again
        (22); needs each device. tangent (not in the paper): the mean of the tensors' changes,
        projected on the tangent space of the broadcast factors"""
        solver_steps: int = Field(5, ge=1)
        """s, Nesterov steps on a minibatch"""
        factor_steps: int = Field(17, ge=1)
        """s', Adam steps on the factors after each solve"""
        factor_update: Literal["joint", "alternate"] = "joint"
        """all factors from one gradient, or mode by mode, each from a fresh one"""
        personal_learning_rate: float = stackable(0.08, gt=0)
        """eta_p, the Nesterov step of the personal model"""
        factor_learning_rate: float = stackable(8e-4, gt=0)
        """eta, the Adam step of the factors; 3e-4 in the paper's Table III"""
        penalty: float = stackable(12.0, gt=0)
        """lambda, the weight of the penalty"""
        server_learning_rate: float = stackable(1.0, gt=0)
        """beta, the server's step towards the mean; above 1 it extrapolates"""
        weights: Literal["samples", "uniform"] = "samples"
        """devices count by their samples, as in (21), or equally, as (20) is printed"""
        sends: Literal["increment", "factors"] = "increment"
        """with afm and act, what travels: the factors' increment, or the factors. The same on a
        link without errors"""
        downlink: Literal["factors", "both"] = "factors"
        """the server sends the factors, or the full tensors too"""
        act_start: Literal["near", "random"] = "near"
        """with act, where alternating least squares of a convolution's tensor begin (22): at the
        mean or the old factors, whichever are nearer; or at random ones, new in each round, of the
        tensor's variance. Matrices are truncated, which needs no start"""
        act_sweeps: int = Field(50, ge=1)
        """with act, the most sweeps over all factors (22)"""
        act_theta_start: Literal["factors", "tensor"] = "factors"
        """with act, personal models start a round from the new factors' tensor, or from the mean
        tensor itself, which needs downlink: both"""

        def find_conflicts(self) -> Iterator[str]:
            if self.rank is not None and self.compression_rate is not None:
                yield "rank and compression_rate both set the ranks; give one of them"
            if self.act_theta_start == "tensor" and self.aggregation != "act":
                yield (
                    f"act_theta_start: tensor is for aggregation: act, and it is "
                    f"{self.aggregation}; act_theta_start: factors would do"
                )
            if self.act_theta_start == "tensor" and self.downlink != "both":
                yield "act_theta_start: tensor needs the tensor sent; downlink: both would do"
            if self.aggregation == "tangent" and self.sends == "factors":
                yield (
                    "aggregation: tangent sends coordinates of the change, never factors; "
                    "sends: increment would do"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            sides = sides_of(scenario)
            return [] if sides is None else one_each(self.rank, sides)

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, layered(model, settings.name), devices)
        modes = [cp_layers.modes(layer) for layer in self.model.layers]
        rank, rate = settings.rank, settings.compression_rate or 2.0
        if rank is None:
            rank = [cp.rank_for(sizes, rate) for sizes in modes]
        self.ranks = each_rank(rank, [cp.largest_rank(sizes) for sizes in modes])
        self.cp = CpBlocks(self.model, self.ranks)

    @classmethod
    def needs_of(cls, settings: Any) -> Needs:
        return "each" if settings.aggregation == "act" else "mean"

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        return bool(settings.sends == "increment")

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Start at factors whose tensors have He's variance; biases zero."""
        server: c.Tensors = {}
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            names = self.cp.names(layer.weight)
            deviation = cp.start_deviation(layer.inputs, rank, len(names))
            for name in names:
                server[name] = deviation * streams.normal(START / name, 0, self.cp.shapes[name])
            first = server[names[0]]
            server[layer.bias] = first.new_zeros(len(first), layer.outputs)
        devices = named("local", server) | named("personal", self.cp.dense(server))
        devices = {name: block[:, None] for name, block in devices.items()}
        if self.settings.aggregation == "act":
            server[RESIDUAL] = first.new_zeros(len(first))
        if self.settings.downlink == "both":
            server[TENSOR] = self.cp.tensors(server)
        return server, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast factors and biases side by side, and the tensors where they are sent."""
        blocks = {c.MODEL: flatten(self.cp.of(server))}
        if self.settings.downlink == "both":
            blocks[TENSOR] = server[TENSOR]
        return c.Broadcast(blocks)

    def local(self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext) -> Outcome:
        """Do Algorithm 1, lines 6 to 11."""
        step, penalty = (
            context.gather_hyper("personal_learning_rate"),
            context.gather_hyper("penalty"),
        )
        work, form, joint = context.work, self.form, self.settings.factor_update == "joint"
        flat = broadcast.blocks[c.MODEL].clone()
        start, local = (unflatten(b, self.cp.shapes) for b in (broadcast.blocks[c.MODEL], flat))
        centre_params = self._centre(local)
        begin = dict(centre_params)
        if TENSOR in broadcast.blocks:
            begin |= unflatten(broadcast.blocks[TENSOR], self.cp.weights)
        theta = form.hold(begin)
        pull = FactorPull(self.cp, flat, context.gather_hyper("factor_learning_rate"), penalty)
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch = work.batch(index)
            centre = form.take(centre_params)
            span = form.span(batch, theta, difference(centre, theta, out=centre))
            there = span.origin + span.directions[0]
            point, batch_loss = nesterov_steps(  # eq. (15)
                span, span.origin, there, step, penalty, self.settings.solver_steps
            )
            loss += batch_loss
            span.write_(point, theta)
            target = form.blocks(theta)
            pull.steps_(target, self.settings.factor_steps, joint)  # eqs. (19), (25)
            if index + 1 < work.steps:
                centre_params = self._centre(local, centre_params)
        state = named("personal", copied(target)) | named("local", copied(local))
        return state, self._payload(local, start), loss / work.steps

    def _centre(self, local: c.Tensors, memory: c.Tensors | None = None) -> c.Tensors:
        """Return the parameters [[A]], b, to be written to: in new memory, or over `memory`."""
        dense = self.cp.dense(local, out=memory)
        return dense | {layer.bias: local[layer.bias].clone() for layer in self.model.layers}

    def _payload(self, local: c.Tensors, start: c.Tensors) -> c.Payload:
        if self.settings.sends == "factors":
            sent = {name: block.clone() for name, block in local.items()}
        else:
            sent = {name: block - start[name] for name, block in local.items()}
        if self.settings.aggregation == "tangent":
            for name in self.cp.weights:
                moved = cp_aggregation.coordinates(
                    self.cp.factors(start, name), self.cp.factors(local, name)
                )
                sent |= self.cp.named(name, moved)
        if self.settings.weights == "samples":
            return (c.Group(sent),)
        share = {name: block.div_(self.devices) for name, block in sent.items()}
        return (c.Group(share, weighting="none"),)

    def combine(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        if self.settings.aggregation == "act":
            return self._composed(server, received, context)
        beta, old = context.hyper["server_learning_rate"], self.cp.of(server)
        if self.settings.weights == "uniform":
            received = self._averaged(received, context.cohort)
        mean = received.mean[0]
        if self.settings.sends == "factors":  # eq. (20)
            mean = mean_or(old, received, 0)
            new = {n: torch.lerp(b, mean[n], c.column(beta, b)) for n, b in old.items()}
        else:
            steps = {n: c.column(beta, b) * b for n, b in mean.items()}
            new = {n: b + steps[n] for n, b in old.items()}
            if self.settings.aggregation == "tangent":
                for name in self.cp.weights:
                    at, along = self.cp.factors(old, name), self.cp.factors(steps, name)
                    new |= self.cp.named(name, cp_aggregation.retract(at, along))
        if self.settings.downlink == "both":
            new[TENSOR] = self.cp.tensors(new)
        return new

    def _averaged(self, received: c.Received, cohort: c.Cohort) -> c.Received:
        """Turn sums of all that came, each over K, into means. Where some is lost on the way the
        devices' weights tell how much of it."""
        scale = (
            per_trial(cohort.weight, cohort) * self.devices / cohort.rows_per_trial.clamp_min(1.0)
        )
        mean = {}
        for name, block in received.mean[0].items():
            came = received.delivered_weight(0, name).clamp_min(1e-12)
            mean[name] = block * c.column(scale, block) / came
        return replace(received, mean=(mean, *received.mean[1:]))

    def _composed(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        """Aggregate by ACT: eqs. (21), (22), with the step beta in between."""
        assert received.each is not None
        cohort, beta = context.cohort, context.hyper["server_learning_rate"]
        each = received.each[0]
        if self.settings.weights == "uniform":
            each = {name: block * self.devices for name, block in each.items()}
        if self.settings.sends == "increment":
            each = {name: block + server[name][cohort.trial] for name, block in each.items()}
        weight = self._weight_of(received, cohort)
        new: c.Tensors = {}
        residual, whole = torch.zeros_like(beta), torch.zeros_like(beta)
        tensors: c.Tensors = {}
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            name, bias = layer.weight, layer.bias
            old, sent = self.cp.factors(server, name), self.cp.factors(each, name)
            mean = cp_aggregation.mean_tensor(sent, weight, cohort.trial, cohort.trials)
            tensors[name] = torch.lerp(cp.kruskal(old), mean, c.column(beta, mean))  # eq. (21)
            afm = [_moved(a, b, weight, cohort, beta) for a, b in zip(old, sent, strict=True)]
            guesses = [afm, old]
            if self.settings.act_start == "random":
                guesses = [self._guess(name, tensors[name], context)]
            factors, rest = cp_aggregation.factored(  # eq. (22)
                tensors[name], guesses, rank, self.settings.act_sweeps
            )
            new |= self.cp.named(name, factors)
            new[bias] = _moved(server[bias], each[bias], weight, cohort, beta)
            size = tensors[name].square().sum((1, 2))
            residual, whole = residual + rest.square() * size, whole + size
        new[RESIDUAL] = (residual / whole).sqrt()
        if self.settings.act_theta_start == "tensor":
            new[TENSOR] = flatten(tensors)
        elif self.settings.downlink == "both":
            new[TENSOR] = self.cp.tensors(new)
        return new

    def _guess(self, weight: str, tensor: Tensor, context: c.Context) -> list[Tensor]:
        """Draw factors whose tensor has as large entries as this one, [S, ...], by expectation."""
        names = self.cp.names(weight)
        rank = self.cp.shapes[names[0]][0]
        scale = (tensor.square().mean((1, 2)) / rank) ** (0.5 / len(names))
        return [
            scale[:, None, None]
            * context.streams.normal(GUESS / name, context.round, self.cp.shapes[name])
            for name in names
        ]

    def _weight_of(self, received: c.Received, cohort: c.Cohort) -> Tensor:
        """Return each device's weight in the mean, [n], summing to one over those of a trial that
        came."""
        weight = not_lost(received, cohort)
        if self.settings.weights == "samples":
            weight = weight * cohort.weight
        total = per_trial(weight, cohort)
        return weight / total.clamp_min(torch.finfo(total.dtype).tiny)[cohort.trial]

    def views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        local = {name: block.flatten(0, 1) for name, block in own(devices, "local").items()}
        return {
            "global": c.View(self.cp.of(server), self._predict),
            "local": c.View(local, self._predict, "device"),
            "personal": device_view(self.model, devices, "personal"),
        }

    def _predict(self, blocks: c.Tensors, x: Tensor) -> Tensor:
        factors = {name: self.cp.factors(blocks, name) for name in self.cp.weights}
        return cp_layers.logits(self.model, {**blocks, **factors}, x)

    def measures(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure prox_gap: mean over devices of |theta_k - [[A_k]]| / |[[A_k]]|, weights and
        biases together; and, of act, refactoring_error: the relative distance of the last tensors
        from their factors (22)."""
        personal, local = own(devices, "personal"), own(devices, "local")
        gap = whole = torch.zeros(())
        shape = next(iter(personal.values())).shape[:2]
        centre = self.cp.dense({name: block.flatten(0, 1) for name, block in local.items()})
        for name, block in centre.items():
            apart = personal[name].flatten(0, 1) - block
            gap = gap + apart.flatten(1).square().sum(1)
            whole = whole + block.flatten(1).square().sum(1)
        out = {"prox_gap": (gap / whole).sqrt().view(shape).mean(1)}
        if self.settings.aggregation == "act":
            out["refactoring_error"] = server[RESIDUAL]
        return out

    def constants(self) -> dict[str, float]:
        """Return the compression of the weights, of two middle layers the later; biases travel
        whole."""
        dense = [layer.inputs * layer.outputs for layer in self.model.layers]
        return compression(dense, self.cp.reals(), len(dense) // 2)

    def flops(self, load: c.Workload) -> np.ndarray:
        """Return the operations: in each step the Nesterov steps with their points ahead, the Adam
        steps of factors and biases, and the factors' tensor; in the end the coordinates or the
        increment."""
        settings, size = self.settings, self.model.size
        gradients = settings.solver_steps * self.model.training_flops(load.batch)
        solving = PENALISED * settings.solver_steps + AHEAD * (settings.solver_steps - 1)
        joint = settings.factor_update == "joint"
        factors = settings.factor_steps * self.cp.step_flops(joint) + self.cp.dense_flops()
        sent = float(self.cp.size)
        if settings.aggregation == "tangent":
            sent += self.cp.coordinates_flops()
        return load.steps * (gradients + solving * size + factors) + sent


def _moved(old: Tensor, each: Tensor, weight: Tensor, cohort: c.Cohort, beta: Tensor) -> Tensor:
    """Return (1 - beta) old + beta times the weighted mean over each trial's rows; eq. (20)."""
    mean = torch.zeros_like(old).index_add_(0, cohort.trial, each * c.column(weight, each))
    return torch.lerp(old, mean, c.column(beta, old))
