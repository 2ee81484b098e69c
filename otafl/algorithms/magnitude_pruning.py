"""Average models of which each device keeps the largest weights after local SGD, 0 for the others.

Every device prunes its own weights, so the mean of K devices has up to K times the entries that one
keeps. Xue and Lau compare FedRLR with it as baseline 3. Devices send the model itself.

References
----------
Frankle, Dziugaite, Roy, Carbin 2020, "Linear Mode Connectivity and the Lottery Ticket Hypothesis".
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", section VI.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.parameters import run_sgd_
from otafl.algorithms.whole_models import (
    BiasMode,
    WholeSettings,
    build_payload,
    compute_step_size,
    list_weights,
)
from otafl.core.contracts import Broadcast, LocalContext, Tensors
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import flatten, unflatten


class MagnitudePruning(Algorithm):
    """Keeps server blocks: every parameter of the model, [S, *shape]; no device state."""

    sends_model: ClassVar[bool] = True

    class Settings(WholeSettings):
        name: Literal["magnitude_pruning"] = "magnitude_pruning"
        keep: float = Field(0.03125, gt=0, le=1)
        """share of the weights that is kept"""
        scope: Literal["layer", "global"] = "layer"
        """the largest of each layer are kept, or of all layers together"""
        bias_mode: BiasMode = "ideal"

    flops_per_param_round = 3.0
    """Comparisons that select the largest, some three a number (Knuth, vol. 3, section 5.2.2)."""

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
