"""Averaging of models whose weights stay low-rank by singular-value thresholds (FedMiD).

Federated mirror descent with a nuclear norm, the Euclidean mirror map and server rate 1. Devices
send the model itself. It is baseline 1 of Xue and Lau's comparison with FedRLR.

References
----------
Yuan, Zaheer, Reddi 2021, "Federated Composite Optimization", Algorithm 2.
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", section VI.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Outcome
from otafl.algorithms.baselines.whole_model_method import WholeModelMethod
from otafl.algorithms.whole_models import (
    BiasMode,
    WholeSettings,
    build_payload,
    compute_step_size,
    list_weights,
)
from otafl.core.contracts import Broadcast, Context, LocalContext, Received, Tensors, Workload
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import declare_stackable
from otafl.factorised.shrinkage import count_rank, count_svt_flops, threshold_singular_values


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
        server_prox: bool = True
        """whether the server also thresholds the singular values of the received mean, by lambda
        times the sum of a device's step sizes in the round"""
        bias_mode: BiasMode = "ideal"

        def check(self, scenario: Any) -> Iterator[Problem]:
            epochs = scenario.training.local_epochs
            if self.server_prox and epochs is not None:
                text = (
                    f"got {epochs}, but algorithm 'fedmid' uses one number of local steps at the "
                    "server; use training.local_steps"
                )
                yield make_problem(text, "training.local_epochs", "algorithm")

    state_attrs: ClassVar = ("_steps",)

    _steps = 1
    """Local steps of the last round."""

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        trial, work = context.cohort.trial, context.local_data
        self._steps = work.steps
        params = dict(broadcast.tensors)
        eta = compute_step_size(context.hyper, context.round)
        step, threshold = eta[trial], (eta * context.hyper["nuclear_weight"])[trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            loss += self.model.take_sgd_step_(params, work.draw_batch(index), step)
            self._shrink_(params, threshold)
        payload = build_payload(params, self.model, self.settings.bias_mode)
        return {}, payload, loss / work.steps

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        model = super().update_server(server, received, context)
        if self.settings.server_prox:
            eta = compute_step_size(context.hyper, context.round)
            self._shrink_(model, self._steps * eta * context.hyper["nuclear_weight"])
        return model

    def _shrink_(self, params: Tensors, threshold: Tensor) -> None:
        """Apply svt with the thresholds [n] to every weight [n, *shape].

        The filters of a convolution are the rows of a matrix.
        """
        for name in list_weights(self.model):
            weight = params[name]
            params[name] = threshold_singular_values(weight.flatten(2), threshold).view_as(weight)

    def compute_metrics(self, server: Tensors, devices: Tensors) -> dict[str, Tensor]:
        """Measure "weight_rank" [S], the mean rank of the weights.

        The rank is the number of singular values above 1e-3 of the largest.
        """
        ranks = [count_rank(server[name].flatten(2)) for name in list_weights(self.model)]
        return {"weight_rank": torch.stack(ranks).mean(0)}

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the operations of training, and of the threshold on each weight in every step."""
        shapes = (self.model.shapes[name] for name in list_weights(self.model))
        shrinking = sum(count_svt_flops(rows, math.prod(rest)) for rows, *rest in shapes)
        return super().count_flops(workload) + workload.num_steps * shrinking
