"""Predict the next token at every position of a sequence by an LSTM.

Tokens are embedded in a few numbers, layers of LSTM cells read the sequence, and a fully connected
layer scores the next token from the state at each position. It is the model of LEAF's Shakespeare
(an embedding of 8 and two layers of 256 units), with scores at every position in place of the last
one. The embedding starts uniform in +-1, the LSTM in +-1/sqrt(hidden), and the last layer in
+-1/sqrt(fan_in), with biases too.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
Hochreiter, Schmidhuber 1997, "Long Short-Term Memory".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Tensors
from otafl.models.base import LOSS, Draw, Model, ModelSettings
from otafl.models.geometry import require_tokens
from otafl.models.linear_layer import draw_uniform_start, number_layers
from otafl.models.lstm import LstmLayers


class TokenLstm(Model):
    """Embedding, LSTM layers and a fully connected layer that scores the next token.

    The parameters are "embedding" [tokens, embedding]; of layer l "input{l}" [features, 4 hidden],
    "hidden{l}" [hidden, 4 hidden], "input_bias{l}" and "hidden_bias{l}" [4 hidden]; and
    "weight0" [hidden, tokens] and "bias0" [tokens].
    """

    scores_positions = True

    class Settings(ModelSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "data.name": "shakespeare",
            "model.embedding": 3,
            "model.hidden": 4,
        }

        name: Literal["token_lstm"] = "token_lstm"
        embedding: int = Field(8, ge=1)
        """numbers that a token becomes"""
        hidden: int = Field(64, ge=1)
        """units of a layer"""
        layers: int = Field(1, ge=1)
        """LSTM layers, one above the other"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.length, self.tokens = require_tokens(input_shape, settings.name), classes
        self._layers = LstmLayers(settings.embedding, settings.hidden, settings.layers)
        self._top = number_layers([(settings.hidden, classes)])
        self.shapes = {"embedding": (classes, settings.embedding)} | self._layers.shapes
        self.shapes |= {"weight0": (settings.hidden, classes), "bias0": (classes,)}
        self.macs, self.first_macs, self.elementwise = self._layers.count(self.length)
        self.macs += self.length * settings.hidden * classes
        self.elementwise += self.length * LOSS * classes
        self.saved_activations = self._layers.count_saved(self.length) + self.length * classes

    def init(self, draw: Draw) -> Tensors:
        params = {"embedding": 2.0 * draw("embedding", self.shapes["embedding"]) - 1.0}
        return params | self._layers.init(draw) | draw_uniform_start(self._top, draw, "uniform")

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        table = params["embedding"]
        first = torch.arange(len(table), device=x.device)[:, None, None] * self.tokens
        seen = functional.embedding(x.long() + first, table.flatten(0, 1))
        seen = self._layers.run(params, seen)
        scores = torch.baddbmm(params["bias0"][:, None], seen.flatten(1, 2), params["weight0"])
        return scores.unflatten(1, (x.shape[1], self.length))
