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
from otafl.algorithms.parameters import sgd_
from otafl.algorithms.whole_models import BiasMode, WholeSettings, payload_of, step_size, weights_of
from otafl.core.contracts import Broadcast, LocalContext, Tensors
from otafl.factorised.shrinkage import top
from otafl.models.base import flatten, unflatten


class MagnitudePruning(Algorithm):
    """Keeps server blocks: every parameter of the model, [S, *shape]; no device state."""

    whole: ClassVar[bool] = True

    class Settings(WholeSettings):
        name: Literal["magnitude_pruning"] = "magnitude_pruning"
        keep: float = Field(0.03125, gt=0, le=1)
        """share of the weights that is kept"""
        scope: Literal["layer", "global"] = "layer"
        """the largest of each layer are kept, or of all layers together"""
        bias_mode: BiasMode = "ideal"

    round_operations = 3.0
    """Comparisons that select the largest, some three a number (Knuth, vol. 3, section 5.2.2)."""

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        params = dict(broadcast.blocks)
        rate = step_size(context.hyper, context.round)[context.cohort.trial]
        loss = sgd_(self.model, params, rate, context)
        params |= self._pruned({name: params[name] for name in weights_of(self.model)})
        return {}, payload_of(params, self.model, self.settings.bias_mode), loss

    def _pruned(self, weights: Tensors) -> Tensors:
        """Keep the largest magnitudes of each layer, or of all layers side by side."""
        if self.settings.scope == "global":
            shapes = {name: self.model.shapes[name] for name in weights}
            return unflatten(self._largest(flatten(weights)), shapes)
        return {name: self._largest(w.flatten(1)).view_as(w) for name, w in weights.items()}

    def _largest(self, rows: Tensor) -> Tensor:
        return top(rows, max(1, round(self.settings.keep * rows.shape[1])))
