"""Averaging of compressed models that devices send whole: FedMiD, proximal SGD, magnitude pruning.

They are baselines 1 to 3 of Xue and Lau's comparison with FedRLR.

FedMiD keeps weights low-rank by singular-value thresholds: federated mirror descent with a nuclear
norm, the Euclidean mirror map and server rate 1.

Proximal SGD keeps weights sparse by soft thresholds. The l1 norm of the weights is added to the
loss, and its proximal step soft-thresholds the weights after each gradient step.

With magnitude pruning each device keeps only the largest weights of each layer, and sets the others
to 0 after local SGD. Devices prune different weights, so the mean of K devices has up to K times
the entries of one.

Parameters are tensors [.., *shape]. Weights are the matrices of a model's layers, or a module's
parameters of two or more dimensions. All other parameters count as biases.

References
----------
Yuan, Zaheer, Reddi 2021, "Federated Composite Optimization", Algorithm 2.
Yang, Yuan, Chatzinotas, Ottersten 2020, "ProxSGD: Training Structured Neural Networks under
    Regularization and Constraints", Algorithm 1.
Frankle, Dziugaite, Roy, Carbin 2020, "Linear Mode Connectivity and the Lottery Ticket Hypothesis".
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", section VI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.deliveries import replace_delivered
from otafl.algorithms.parameters import (
    compute_step_size,
    draw_start,
    make_view,
    run_sgd_,
    run_steps,
)
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import DataDisclosure, declare_stackable
from otafl.factorised.shrinkage import (
    count_rank,
    count_svt_flops,
    keep_largest,
    soft_threshold,
    threshold_singular_values,
)
from otafl.models.base import Model
from otafl.models.layered import LayeredModel

IDEAL_ROUTE = DataDisclosure("ideal", "ota", "the biases")
"""The data that `bias_mode: ideal` discloses."""

BiasMode = Annotated[
    Literal["ideal", "ota"],
    Field(description="route of the biases: ideal, free of errors and not counted, or ota, uplink"),
    IDEAL_ROUTE,
]
"""Route of the biases."""


class WholeSettings(settings.Settings):
    """Settings of FedRLR's baselines (Xue and Lau 2023, section VI)."""

    learning_rate: float = declare_stackable(0.2, gt=0)
    """step size of local SGD in the first round; 2 / 1000 in FedRLR's experiments, with pixels from
    0 to 255"""
    decay: float = declare_stackable(0.001, ge=0)
    """rate of the decay: the step size of round t is learning_rate / (1 + decay t); FedRLR has 2 /
    (1000 + t)"""


def list_weights(model: Model) -> tuple[str, ...]:
    """List the names of a model's weights."""
    if isinstance(model, LayeredModel):
        return tuple(layer.weight for layer in model.layers)
    return tuple(name for name, shape in model.shapes.items() if len(shape) >= 2)


def build_payload(params: c.Tensors, model: Model, bias_mode: BiasMode) -> c.Payload:
    """Build a payload of the weights, and of the biases in a second group.

    Parameters
    ----------
    params : dict of str to Tensor [n, *shape]
        Parameters.
    model : Model
        Model of the parameters.
    bias_mode : {"ideal", "ota"}
        Route of the biases.

    Returns
    -------
    tuple of Group
        The groups.
    """
    matrices = {name: params[name] for name in list_weights(model)}
    biases = {name: block for name, block in params.items() if name not in matrices}
    groups = [c.Group(matrices)] if matrices else []
    return (*groups, build_bias_group(biases, bias_mode)) if biases else tuple(groups)


def build_bias_group(biases: c.Tensors, bias_mode: BiasMode) -> c.Group:
    """Build a group of the biases."""
    if bias_mode == "ota":
        return c.Group(biases)
    return c.Group(biases, route="ideal", reason="the paper describes no uplink of the biases")


def get_received_model(old: c.Tensors, received: c.Received) -> c.Tensors:
    """Return the weighted mean of the received models, in the order of the old model.

    Parameters
    ----------
    old : dict of str to Tensor [S, *shape]
        Current model, which stays for coordinates without a delivery.
    received : Received
        Aggregates.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        New model.
    """
    mean: c.Tensors = {}
    for group in range(len(received.mean)):
        mean |= replace_delivered(old, received, group)
    return {name: mean[name] for name in old}


class WholeModelMethod(Algorithm):
    """A method whose devices send their parameters, by `build_payload`.

    The server's tensors are the parameters [S, *shape] instead of "model", and their mean is the
    next model. Devices have no state.
    """

    payload: ClassVar = PayloadKind(is_increment=False)

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        return self.count_step_flops(workload, per_param_round=0.0)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        return draw_start(self.model, streams), {}

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return get_received_model(server, received)

    def _train(
        self,
        broadcast: c.Broadcast,
        context: c.LocalContext,
        weight: Tensor,
        shrink_: Callable[[c.Tensors, Tensor], None],
    ) -> Outcome:
        """Train by SGD with a proximal step of a penalty after each step.

        weight [S] is that of the penalty. shrink_ takes the step in place, with thresholds [n].
        """
        trial, params = context.cohort.trial, dict(broadcast.tensors)
        eta = compute_step_size(context.hyper, context.round)
        rate, threshold = eta[trial], (eta * weight)[trial]

        def take_step_(batch: c.Batch) -> Tensor:
            loss = self.model.take_sgd_step_(params, batch, rate)
            shrink_(params, threshold)
            return loss

        loss = run_steps(context, take_step_)
        return {}, build_payload(params, self.model, self.settings.bias_mode), loss

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        return {"global": make_view(self.model, server)}

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure "weight_density" [S], the share of the global weights that are not zero."""
        blocks = [server[name].flatten(1) for name in list_weights(self.model)]
        some = torch.stack([(block != 0).sum(1) for block in blocks]).sum(0)
        every = sum(block.shape[1] for block in blocks)
        return {"weight_density": some.to(blocks[0].dtype) / every}


class FedMiD(WholeModelMethod):
    r"""Federated mirror descent with a nuclear norm.

    The server's tensors are the parameters of the model, [S, *shape]. Devices have no state.

    Notes
    -----
    A local step with the gradient G is the proximal step of eta lambda |W|_*,

    .. math::

        W \leftarrow \mathrm{svt}(W - \eta G, \eta \lambda)

    where svt soft-thresholds the singular values. After J local steps the server takes svt of the
    mean with the threshold J eta lambda.

    Examples
    --------
    `studies/fedrlr/fedrlr_fig8.yaml` compares it with FedRLR.
    """

    class Settings(WholeSettings):
        name: Literal["fedmid"] = "fedmid"
        nuclear_weight: float = declare_stackable(5e-4, ge=0)
        """lambda, weight of the nuclear norm in the loss"""
        bias_mode: BiasMode = "ideal"

    excludes: ClassVar[Mapping[str, str]] = {
        "epochs": "uses one number of local steps at the server",
    }

    state_attrs: ClassVar = ("_steps",)

    _steps = 1
    """Local steps of the last round."""

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        self._steps = context.local_data.steps
        return self._train(broadcast, context, context.hyper["nuclear_weight"], self._shrink_)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        model = super().update_server(server, received, context)
        eta = compute_step_size(context.hyper, context.round)
        self._shrink_(model, self._steps * eta * context.hyper["nuclear_weight"])
        return model

    def _shrink_(self, params: c.Tensors, threshold: Tensor) -> None:
        """Apply svt to every weight; the filters of a convolution are the rows of a matrix."""
        for name in list_weights(self.model):
            weight = params[name]
            params[name] = threshold_singular_values(weight.flatten(2), threshold).view_as(weight)

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Measure "weight_rank" [S], the mean rank of the weights.

        The rank is the number of singular values above 1e-3 of the largest.
        """
        ranks = [count_rank(server[name].flatten(2)) for name in list_weights(self.model)]
        return {"weight_rank": torch.stack(ranks).mean(0)}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of training, and of the threshold on each weight in every step."""
        shapes = (self.model.shapes[name] for name in list_weights(self.model))
        shrinking = sum(count_svt_flops(rows, math.prod(rest)) for rows, *rest in shapes)
        return super().count_flops(workload) + workload.num_steps * shrinking


class ProxSgd(WholeModelMethod):
    r"""Federated averaging with proximal SGD.

    The server's tensors are the parameters of the model, [S, *shape]. Devices have no state.

    Notes
    -----
    A local step with the gradient G is

    .. math::

        W \leftarrow \mathrm{soft}(W - \eta G, \eta \lambda)

    where soft is the soft threshold.

    Examples
    --------
    `studies/fedrlr/fedrlr_fig8.yaml` compares it with FedRLR.
    """

    is_per_device = True

    class Settings(WholeSettings):
        name: Literal["prox_sgd"] = "prox_sgd"
        l1_weight: float = declare_stackable(0.001, ge=0)
        """lambda, weight of the l1 norm in the loss"""
        bias_mode: BiasMode = "ideal"

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps and soft thresholds."""
        return self.count_step_flops(workload, per_param_step=4.0, per_param_round=0.0)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        return self._train(broadcast, context, context.hyper["l1_weight"], self._shrink_)

    def _shrink_(self, params: c.Tensors, threshold: Tensor) -> None:
        """Soft-threshold every weight."""
        for name in list_weights(self.model):
            of_weight = c.unsqueeze_like(threshold, params[name])
            params[name] = soft_threshold(params[name], of_weight)


class MagnitudePruning(WholeModelMethod):
    """Federated averaging of pruned models.

    The server's tensors are the parameters of the model, [S, *shape]. Devices have no state.

    Examples
    --------
    `studies/fedrlr/fedrlr_fig8.yaml` compares it with FedRLR.
    """

    class Settings(WholeSettings):
        name: Literal["magnitude_pruning"] = "magnitude_pruning"
        keep: float = Field(0.03125, gt=0, le=1)
        """share of each layer's weights that stay"""
        bias_mode: BiasMode = "ideal"

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps, and the comparisons that select the largest weights.

        These are about three a number (Knuth, vol. 3, section 5.2.2).
        """
        return self.count_step_flops(workload, per_param_round=3.0)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        params = dict(broadcast.tensors)
        rate = compute_step_size(context.hyper, context.round)[context.cohort.trial]
        loss = run_sgd_(self.model, params, rate, context)
        for name in list_weights(self.model):
            rows = params[name].flatten(1)
            count = max(1, round(self.settings.keep * rows.shape[1]))
            params[name] = keep_largest(rows, count).view_as(params[name])
        return {}, build_payload(params, self.model, self.settings.bias_mode), loss
