"""Averaging of models of which each device keeps only the largest weights (magnitude pruning).

Every device sets the other weights to 0 after local SGD. Devices prune different weights, so the
mean of K devices has up to K times the entries of one. Devices send the model itself. It is
baseline 3 of Xue and Lau's comparison with FedRLR.

References
----------
Frankle, Dziugaite, Roy, Carbin 2020, "Linear Mode Connectivity and the Lottery Ticket Hypothesis".
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", section VI.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Outcome
from otafl.algorithms.baselines.whole_model_method import WholeModelMethod
from otafl.algorithms.parameters import count_step_flops, run_sgd_
from otafl.algorithms.whole_models import (
    BiasMode,
    WholeSettings,
    build_payload,
    compute_step_size,
    list_weights,
)
from otafl.core.contracts import Broadcast, LocalContext, Tensors, Workload
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import flatten, unflatten


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
        """share of the weights that stay"""
        scope: Literal["layer", "global"] = "layer"
        """range of the comparison: the largest weights of each layer, or of all layers together"""
        bias_mode: BiasMode = "ideal"

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the steps, and the comparisons that select the largest weights.

        These are about three a number (Knuth, vol. 3, section 5.2.2).
        """
        return count_step_flops(self.model, workload, per_param_round=3.0)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = dict(broadcast.tensors)
        rate = compute_step_size(context.hyper, context.round)[context.cohort.trial]
        loss = run_sgd_(self.model, params, rate, context)
        params |= self._prune({name: params[name] for name in list_weights(self.model)})
        return {}, build_payload(params, self.model, self.settings.bias_mode), loss

    def _prune(self, weights: Tensors) -> Tensors:
        """Keep the largest magnitudes of each layer, or of all layers side by side."""
        if self.settings.scope == "global":
            shapes = {name: self.model.shapes[name] for name in weights}
            return unflatten(self._keep_largest(flatten(weights)), shapes)
        return {name: self._keep_largest(w.flatten(1)).view_as(w) for name, w in weights.items()}

    def _keep_largest(self, rows: Tensor) -> Tensor:
        return keep_largest(rows, max(1, round(self.settings.keep * rows.shape[1])))
