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
from otafl.models.linear_layer import draw_uniform_start, number_layers
from otafl.models.lstm import compute_states
from otafl.models.sequences import require_tokens


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
        self.hidden, self._layers = settings.hidden, settings.layers
        wide = 4 * settings.hidden
        self.shapes = {"embedding": (classes, settings.embedding)}
        for layer in range(settings.layers):
            inputs = settings.embedding if layer == 0 else settings.hidden
            self.shapes[f"input{layer}"] = (inputs, wide)
            self.shapes[f"hidden{layer}"] = (settings.hidden, wide)
            self.shapes[f"input_bias{layer}"] = (wide,)
            self.shapes[f"hidden_bias{layer}"] = (wide,)
        self._recurrent = tuple(self.shapes)[1:]
        self._top = number_layers([(settings.hidden, classes)])
        self.shapes |= {"weight0": (settings.hidden, classes), "bias0": (classes,)}
        rows = sum(self.shapes[name][0] for name in self._recurrent if len(self.shapes[name]) > 1)
        self.first_macs = wide * settings.layers * settings.hidden  # the states before any token
        self.macs = self.length * (rows * wide + settings.hidden * classes)
        self.elementwise = self.length * (23 * settings.layers * settings.hidden + LOSS * classes)
        self.saved_activations = self.length * (11 * settings.layers * settings.hidden + classes)

    def init(self, draw: Draw) -> Tensors:
        params = {"embedding": 2.0 * draw("embedding", self.shapes["embedding"]) - 1.0}
        for name in self._recurrent:
            params[name] = (2.0 * draw(name, self.shapes[name]) - 1.0) / self.hidden**0.5
        return params | draw_uniform_start(self._top, draw, "uniform")

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        table = params["embedding"]
        n, samples = len(table), x.shape[1]
        first = torch.arange(n, device=x.device)[:, None, None] * self.tokens
        seen = functional.embedding(x.long() + first, table.flatten(0, 1))
        for layer in range(self._layers):
            bias = params[f"input_bias{layer}"] + params[f"hidden_bias{layer}"]
            z = torch.baddbmm(bias[:, None], seen.flatten(1, 2), params[f"input{layer}"])
            by_position = z.unflatten(1, (samples, self.length))
            seen = compute_states(by_position, params[f"hidden{layer}"])
        scores = torch.baddbmm(params["bias0"][:, None], seen.flatten(1, 2), params["weight0"])
        return scores.unflatten(1, (samples, self.length))
