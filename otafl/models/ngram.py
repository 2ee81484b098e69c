"""Predict the next token from the last ones by fully connected layers (neural n-gram model).

At every position of a sequence the model sees its last `context` tokens, one-hot side by side
(zeros before the beginning), through fully connected layers with an activation between them. With a
context of 1 and no hidden layer it has a logit for each pair of tokens, and is a model of any
first-order Markov source. Weights start uniform in +-1/sqrt(fan_in).

References
----------
Bengio, Ducharme, Vincent, Jauvin 2003, "A Neural Probabilistic Language Model".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.contracts import Batch
from otafl.models.base import HiddenWidths
from otafl.models.layered import LayeredModel, Pair
from otafl.models.linear_layer import ActivationSettings, make_chain, require_tokens


class NGram(LayeredModel):
    """Neural n-gram model.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    Examples
    --------
    `docs/objectives.md` has a scenario with `model: ngram`.
    """

    scores_positions = True

    class Settings(ActivationSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "data.name": "shakespeare",
            "model.context": 2,
            "model.hidden": [4],
        }

        name: Literal["ngram"] = "ngram"
        context: int = Field(2, ge=1)
        """tokens that a prediction sees"""
        hidden: HiddenWidths = ()

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.length, self.tokens = require_tokens(input_shape, settings.name), classes
        self.context = settings.context
        widths = [settings.context * classes, *settings.hidden, classes]
        super().__init__(make_chain(widths, settings.slope), None, settings.bias_start)
        self.is_affine = False
        self.positions = dict.fromkeys(self.linear_weights, self.length)
        self.macs, self.first_macs = self.length * self.macs, self.length * self.first_macs
        self.elementwise *= self.length
        self.saved_activations = self.length * sum(widths)

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        """Return None: a plain chain of layers does not look back over a sequence."""
        return None

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        seen = self._look_back(x, params[self.layers[0].bias].dtype)
        return super().logits(params, seen).unflatten(1, (x.shape[1], self.length))

    def _compute_linear_pairs(
        self, params: Mapping[str, Any], x: Tensor, batch: Batch
    ) -> tuple[Tensor, list[Pair], Tensor]:
        return super()._compute_linear_pairs(params, self._look_back(x, x.dtype), batch)

    def _compute_score_gradient_(self, z: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        by_position = z.unflatten(1, (batch.y.shape[1], self.length))
        loss, g = self.loss.compute_gradient_(by_position, batch)
        return loss, g.flatten(1, 2)

    def _look_back(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what each position sees of tokens x [n, B, length]: [n, B length, context V]."""
        one_hot = functional.one_hot(x.long(), self.tokens).to(dtype)
        lags = range(self.context)
        seen = [functional.pad(one_hot, (0, 0, j, 0))[:, :, : self.length] for j in lags]
        return torch.cat(seen, -1).flatten(1, 2)
