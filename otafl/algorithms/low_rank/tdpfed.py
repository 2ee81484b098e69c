"""Personal models pulled to CP-factorised ones, of which only the factors are sent (TDPFed).

Every device has a dense personal model and CP factors of each layer's weight. A local round takes
Nesterov steps on the personal model under a penalty, with one minibatch, then Adam steps that pull
the factors to it. Devices send only the increments of factors and biases. The server averages
factors (AFM), or averages tensors and factorises them again (ACT). With `aggregation: tangent`
devices send coordinates of the tensors' changes in the frame of the broadcast factors. These
superpose over the air without the ambiguity of AFM (`factorised.cp_aggregation`, not in the paper).
The paper's tau is training.local_steps.

Eq. (17) and the appendix differ, and the appendix is right: the gradient of the factors is eq.
(25). A bias is sent whole. Its centre is the local bias, and Adam trains it on lambda (b -
theta_b).

References
----------
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.deliveries import compute_delivered_shares, sum_per_trial, sum_rows
from otafl.algorithms.low_rank.cp_factors import CpParams, FactorPull
from otafl.algorithms.low_rank.low_rank_layers import (
    Ranks,
    compute_compression,
    expand_rank,
    find_rank_problems,
    require_layers,
)
from otafl.algorithms.parameters import START, add_prefix, make_device_view, select_prefix
from otafl.algorithms.prox import AHEAD, PENALISED, take_nesterov_steps
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.problems import Problem
from otafl.core.rng import Streams, declare_family
from otafl.core.settings import declare_stackable
from otafl.factorised import cp, cp_aggregation
from otafl.models.base import Model, copy_params, flatten, unflatten
from otafl.models.layered import LayeredModel
from otafl.models.span import subtract_params

TENSOR, RESIDUAL = "tensor", "residual"

GUESS = declare_family("act_start", __name__)


class TDPFed(Algorithm):
    r"""Personalised federated learning with tensor decomposition.

    The server's tensors are factors "WEIGHT.A1", "WEIGHT.A2", ... [S, R, I_n] and "BIAS" [S,
    outputs]; with act also "residual" [S]; and "tensor" [S, P] if tensors are broadcast. The
    device's tensors are "personal.PARAMETER" [S, K, *shape] and the factors and biases with the
    prefix "local".

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    With the tensor [[A]] of the factors, a local step takes s Nesterov steps on eq. (15),

    .. math::

        f(\theta; X) + \frac{\lambda}{2} \|\theta - [[A]]\|^2

    and s' Adam steps (19) with the gradient of the penalty by the factors, eq. (25). H_n is the
    Khatri-Rao product, and V_n the Hadamard product of the Gram matrices, of the other factors:

    .. math::

        \lambda \left( A^{(n)} V_n - \theta_{(n)} H_n \right)

    The server computes, with the step beta, for AFM (20) and for ACT (21),

    .. math::

        A \leftarrow (1 - \beta) A + \beta \sum_k w_k A_k, \quad \omega = (1 - \beta) [[A]] + \beta
        \sum_k w_k [[A_k]]

    and for ACT factorises omega again (22).

    Examples
    --------
    `studies/tdpfed/tdpfed_table2.yaml` runs it with the settings of the paper.
    """

    model: LayeredModel

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "draws the factors that it trains",
        "tokens": "computes the scores of a chain of layers by its own factors",
        "merging": "trains factors, whose means are not those of the models",
    }

    class Settings(settings.Settings):
        small: ClassVar[Mapping[str, Any]] = {"factor_steps": 3, "solver_steps": 2}

        name: Literal["tdpfed"] = "tdpfed"
        rank: Ranks | None = None
        """CP rank R of every layer, or a list with one rank for each layer, clipped to the largest
        useful one; by compression_rate if not given"""
        compression_rate: float | None = Field(None, gt=0)
        """weights of a layer over the coordinates of its factors: R = round(prod I_n / (rate sum
        I_n)); 2 if rank is not given either"""
        aggregation: Literal["afm", "act", "tangent"] = "afm"
        """aggregation at the server: afm, mean of the factors (20); act, mean of the tensors (21),
        factorised again (22), which needs each device's update; tangent (not in the paper), mean
        of the tensors' changes, projected on the tangent space of the broadcast factors"""
        solver_steps: int = Field(5, ge=1)
        """s, number of Nesterov steps on a minibatch"""
        factor_steps: int = Field(17, ge=1)
        """s', number of Adam steps on the factors after each solve"""
        factor_update: Literal["joint", "alternate"] = "joint"
        """order of the factors' steps: joint, all from one gradient; alternate, mode by mode with a
        new gradient each"""
        personal_learning_rate: float = declare_stackable(0.08, gt=0)
        """eta_p, step size of Nesterov's method on the personal model"""
        factor_learning_rate: float = declare_stackable(8e-4, gt=0)
        """eta, step size of Adam on the factors; 3e-4 in the paper's Table III"""
        penalty: float = declare_stackable(12.0, gt=0)
        """lambda, weight of the penalty"""
        server_learning_rate: float = declare_stackable(1.0, gt=0)
        """beta, step size of the server towards the mean; above 1 it extrapolates"""
        weights: Literal["samples", "uniform"] = "samples"
        """weights of the devices: samples, by their numbers of samples, as in (21), or uniform, as
        (20) is printed"""
        downlink: Literal["factors", "both"] = "factors"
        """what the server broadcasts: the factors, or the full tensors too"""
        act_start: Literal["near", "random"] = "near"
        """start of the alternating least squares of a convolution's tensor (22), with act: near,
        the mean or the old factors, whichever are nearer; random, new factors of the tensor's
        variance in each round. Matrices are truncated and need no start"""
        act_sweeps: int = Field(50, ge=1)
        """largest number of sweeps over all factors (22), with act"""
        act_theta_start: Literal["factors", "tensor"] = "factors"
        """start of personal models in a round, with act: factors, the tensor of the new factors, or
        tensor, the mean tensor itself, which needs downlink: both"""

        def find_conflicts(self) -> Iterator[str]:
            if self.rank is not None and self.compression_rate is not None:
                yield "rank and compression_rate both set the ranks; give only one of them"
            if self.act_theta_start == "tensor" and self.aggregation != "act":
                yield (
                    "act_theta_start: tensor needs aggregation: act; got aggregation: "
                    f"{self.aggregation}, use act_theta_start: factors"
                )
            if self.act_theta_start == "tensor" and self.downlink != "both":
                yield "act_theta_start: tensor needs downlink: both; got downlink: factors"

        def check(self, scenario: Any) -> Iterable[Problem]:
            return find_rank_problems(scenario, self.rank)

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, require_layers(model, settings.name), devices)
        modes = [layer.modes for layer in self.model.layers]
        rank, rate = settings.rank, settings.compression_rate or 2.0
        if rank is None:
            rank = [cp.compute_rank(sizes, rate) for sizes in modes]
        self.ranks = expand_rank(rank, [cp.largest_rank(sizes) for sizes in modes])
        self.cp = CpParams(self.model, self.ranks)
        dense = [layer.inputs * layer.outputs for layer in self.model.layers]  # without biases
        self.constants = compute_compression(dense, self.cp.count_coordinates(), len(dense) // 2)

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind("each" if settings.aggregation == "act" else "mean")

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return factors whose tensors have He's variance, and biases of zero."""
        server: c.Tensors = {}
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            names = self.cp.list_names(layer.weight)
            deviation = cp.start_deviation(layer.inputs, rank, len(names))
            for name in names:
                server[name] = deviation * streams.draw_normal(
                    START / name, 0, self.cp.shapes[name]
                )
            first = server[names[0]]
            server[layer.bias] = first.new_zeros(len(first), layer.outputs)
        devices = add_prefix("local", server) | add_prefix("personal", self.cp.to_dense(server))
        devices = {name: block[:, None] for name, block in devices.items()}
        if self.settings.aggregation == "act":
            server[RESIDUAL] = first.new_zeros(len(first))
        if self.settings.downlink == "both":
            server[TENSOR] = self.cp.flatten_dense(server)
        return server, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast factors and biases side by side, and the tensors if downlink is "both"."""
        blocks = {c.MODEL: flatten(self.cp.select(server))}
        if self.settings.downlink == "both":
            blocks[TENSOR] = server[TENSOR]
        return c.Broadcast(blocks)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        """Compute lines 6 to 11 of Algorithm 1."""
        step = context.gather_hyper("personal_learning_rate")
        penalty = context.gather_hyper("penalty")
        work, form, joint = context.local_data, self.form, self.settings.factor_update == "joint"
        flat = broadcast.tensors[c.MODEL].clone()
        start, local = (unflatten(b, self.cp.shapes) for b in (broadcast.tensors[c.MODEL], flat))
        centre_params = self._build_centre(local)
        begin = dict(centre_params)
        if TENSOR in broadcast.tensors:
            begin |= unflatten(broadcast.tensors[TENSOR], self.cp.weights)
        theta = form.copy_params(begin)
        pull = FactorPull(self.cp, flat, context.gather_hyper("factor_learning_rate"), penalty)
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch = work.draw_batch(index)
            centre = form.adopt_params(centre_params)
            span = form.make_span(batch, theta, subtract_params(centre, theta, out=centre))
            there = span.origin + span.directions[0]
            point, batch_loss = take_nesterov_steps(  # eq. (15)
                span, span.origin, there, step, penalty, self.settings.solver_steps
            )
            loss += batch_loss
            span.write_(point, theta)
            target = form.to_params(theta)
            pull.take_steps_(target, self.settings.factor_steps, joint)  # eqs. (19), (25)
            if index + 1 < work.steps:
                centre_params = self._build_centre(local, centre_params)
        state = add_prefix("personal", copy_params(target)) | add_prefix(
            "local", copy_params(local)
        )
        return state, self._build_payload(local, start), loss / work.steps

    def _build_centre(self, local: c.Tensors, memory: c.Tensors | None = None) -> c.Tensors:
        """Compute writable parameters [[A]], b in new memory, or in `memory`."""
        dense = self.cp.to_dense(local, out=memory)
        return dense | {layer.bias: local[layer.bias].clone() for layer in self.model.layers}

    def _build_payload(self, local: c.Tensors, start: c.Tensors) -> c.Payload:
        sent = {name: block - start[name] for name, block in local.items()}
        if self.settings.aggregation == "tangent":
            for name in self.cp.weights:
                moved = cp_aggregation.compute_coordinates(
                    self.cp.get_factors(start, name), self.cp.get_factors(local, name)
                )
                sent |= self.cp.name_factors(name, moved)
        if self.settings.weights == "samples":
            return (c.Group(sent),)
        share = {name: block.div_(self.num_devices) for name, block in sent.items()}
        return (c.Group(share, weighting="none"),)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        if self.settings.aggregation == "act":
            return self._aggregate_act(server, received, context)
        beta, old = context.hyper["server_learning_rate"], self.cp.select(server)
        mean, cohort = dict(received.mean[0]), context.cohort
        if self.settings.weights == "uniform":
            # sums over the delivered updates, each divided by K, to means: with lost parts the
            # delivered weight gives their share
            scale = (
                sum_per_trial(cohort.weight, cohort)
                * self.num_devices
                / cohort.rows_per_trial.clamp_min(1.0)
            )
            for name, block in mean.items():
                delivered = received.delivered_weight(0, name).clamp_min(1e-12)
                mean[name] = block * c.unsqueeze_like(scale, block) / delivered
        steps = {n: c.unsqueeze_like(beta, b) * b for n, b in mean.items()}
        new = {n: b + steps[n] for n, b in old.items()}  # eq. (20)
        if self.settings.aggregation == "tangent":
            for name in self.cp.weights:
                at, along = self.cp.get_factors(old, name), self.cp.get_factors(steps, name)
                new |= self.cp.name_factors(name, cp_aggregation.retract(at, along))
        if self.settings.downlink == "both":
            new[TENSOR] = self.cp.flatten_dense(new)
        return new

    def _aggregate_act(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Aggregate by ACT, eqs. (21), (22), with the step beta in between."""
        assert received.per_device is not None
        cohort, beta = context.cohort, context.hyper["server_learning_rate"]
        each = received.per_device[0]
        if self.settings.weights == "uniform":
            each = {name: block * self.num_devices for name, block in each.items()}
        each = {name: block + server[name][cohort.trial] for name, block in each.items()}
        by_samples = self.settings.weights == "samples"
        weight = cohort.weight if by_samples else torch.ones_like(cohort.weight)
        weight = compute_delivered_shares(weight, received, (0,), cohort)
        new: c.Tensors = {}
        residual, whole = torch.zeros_like(beta), torch.zeros_like(beta)
        tensors: c.Tensors = {}
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            name, bias = layer.weight, layer.bias
            old, sent = self.cp.get_factors(server, name), self.cp.get_factors(each, name)
            mean = cp_aggregation.mean_tensor(sent, weight, cohort.trial, cohort.num_trials)
            tensors[name] = torch.lerp(
                cp.kruskal(old), mean, c.unsqueeze_like(beta, mean)
            )  # eq. (21)
            afm = [
                _interpolate_to_mean(a, b, weight, cohort, beta)
                for a, b in zip(old, sent, strict=True)
            ]
            guesses = [afm, old]
            if self.settings.act_start == "random":
                guesses = [self._draw_start_factors(name, tensors[name], context)]
            factors, rest = cp_aggregation.find_factors(  # eq. (22)
                tensors[name], guesses, rank, self.settings.act_sweeps
            )
            new |= self.cp.name_factors(name, factors)
            new[bias] = _interpolate_to_mean(server[bias], each[bias], weight, cohort, beta)
            size = tensors[name].square().sum((1, 2))
            residual, whole = residual + rest.square() * size, whole + size
        new[RESIDUAL] = (residual / whole).sqrt()
        if self.settings.act_theta_start == "tensor":
            new[TENSOR] = flatten(tensors)
        elif self.settings.downlink == "both":
            new[TENSOR] = self.cp.flatten_dense(new)
        return new

    def _draw_start_factors(self, weight: str, tensor: Tensor, context: c.Context) -> list[Tensor]:
        """Draw factors whose tensor has the mean square of this one, [S, ...], in expectation."""
        names = self.cp.list_names(weight)
        rank = self.cp.shapes[names[0]][0]
        scale = (tensor.square().mean((1, 2)) / rank) ** (0.5 / len(names))
        return [
            scale[:, None, None]
            * context.streams.draw_normal(GUESS / name, context.round, self.cp.shapes[name])
            for name in names
        ]

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        local = {
            name: block.flatten(0, 1) for name, block in select_prefix(devices, "local").items()
        }
        return {
            "global": c.View(self.cp.select(server), self._predict),
            "local": c.View(local, self._predict, "device"),
            "personal": make_device_view(self.model, devices, "personal"),
        }

    def _predict(self, tensors: c.Tensors, x: Tensor) -> Tensor:
        return self.model.logits(self.cp.to_dense(tensors), x)

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure "prox_gap" and, with act, "refactoring_error", [S] each.

        "prox_gap" is the mean over devices of |theta_k - [[A_k]]| / |[[A_k]]|, weights and biases
        together. "refactoring_error" is the relative distance of the last tensors from their
        factors (22).
        """
        personal, local = select_prefix(devices, "personal"), select_prefix(devices, "local")
        gap = whole = torch.zeros(())
        shape = next(iter(personal.values())).shape[:2]
        centre = self.cp.to_dense({name: block.flatten(0, 1) for name, block in local.items()})
        for name, block in centre.items():
            apart = personal[name].flatten(0, 1) - block
            gap = gap + apart.flatten(1).square().sum(1)
            whole = whole + block.flatten(1).square().sum(1)
        out = {"prox_gap": (gap / whole).sqrt().view(shape).mean(1)}
        if self.settings.aggregation == "act":
            out["refactoring_error"] = server[RESIDUAL]
        return out

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the steps and of the payload.

        A step has the Nesterov steps with their points ahead, the Adam steps of factors and biases,
        and the factors' tensor. The payload has the coordinates or the increment.
        """
        settings, size = self.settings, self.model.num_params
        gradients = settings.solver_steps * self.model.count_training_flops(
            workload.effective_batch_size
        )
        solving = PENALISED * settings.solver_steps + AHEAD * (settings.solver_steps - 1)
        joint = settings.factor_update == "joint"
        factors = (
            settings.factor_steps * self.cp.count_step_flops(joint) + self.cp.count_dense_flops()
        )
        sent = float(self.cp.num_coordinates)
        if settings.aggregation == "tangent":
            sent += self.cp.count_coordinates_flops()
        return workload.num_steps * (gradients + solving * size + factors) + sent


def _interpolate_to_mean(
    old: Tensor, per_device: Tensor, weight: Tensor, cohort: c.Cohort, beta: Tensor
) -> Tensor:
    """Compute (1 - beta) old + beta times the weighted mean over each trial's rows, eq. (20)."""
    return torch.lerp(old, sum_rows(per_device, weight, cohort), c.unsqueeze_like(beta, old))
