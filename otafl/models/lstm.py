"""Models with long short-term memory (LSTM), for sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Tensors
from otafl.models.base import LOSS, Draw, HiddenWidths, Model, ModelSettings, Shapes
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import (
    LEAKY_SLOPE,
    find_sequence_shape,
    make_chain,
    require_tokens,
)


class Lstm(Model):
    r"""Long short-term memory, then fully connected layers, for sequences (LSTM).

    It is the sentiment model of Shi et al. 2023, appendix C, and (bidirectional, classifier [5000])
    of its code. Samples are sequences [length, features], or [length] of single numbers. The
    classifier has leaky ReLU with slope 0.1 between its layers. Its input is the last state of the
    upper layer. With two directions it is both states at the last position and the final states of
    both directions, so the forward one occurs twice. Weights and biases start uniform, in
    +-1/sqrt(hidden) in the LSTM and +-1/sqrt(fan_in) in the classifier.

    Layer l has in direction d, "_ahead" or "_back", the parameters "input{l}{d}" W [features, 4
    hidden] and "hidden{l}{d}" U [hidden, 4 hidden], with columns in the order i, f, g, o, and
    "input_bias{l}{d}" and "hidden_bias{l}{d}" [4 hidden]. The classifier has "weight{i}" and
    "bias{i}".

    Notes
    -----
    The gates i, f, o are logistic and g is tanh of x W + b + h U + b', with two biases as in
    torch.nn.LSTM, of which SGD moves each:

    .. math::

        c \leftarrow f c + i g, \quad h \leftarrow o \tanh(c)

    Directions of a layer are rows too, so that a bidirectional layer takes as many calls as one
    direction.

    References
    ----------
    Hochreiter, Schmidhuber 1997, "Long Short-Term Memory".
    Gers, Schmidhuber, Cummins 2000, "Learning to Forget: Continual Prediction with LSTM".
    Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in
        Federated Learning", appendix C.

    Examples
    --------
    `docs/models.md` has a scenario with `model: lstm`.
    """

    class Settings(ModelSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "data.name": "sent140",
            "model.hidden": 3,
            "model.classifier": [4],
        }

        name: Literal["lstm"] = "lstm"
        hidden: int = Field(50, ge=1)
        """units of a layer in each direction"""
        layers: int = Field(2, ge=1)
        """number of LSTM layers"""
        bidirectional: bool = False
        """whether the sequence is read in both directions"""
        classifier: HiddenWidths = (100,)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.length, features = find_sequence_shape(input_shape, settings.name)
        ways = ("_ahead", "_back") if settings.bidirectional else ("_ahead",)
        self._layers = LstmLayers(features, settings.hidden, settings.layers, ways)
        read = 4 * settings.hidden if settings.bidirectional else settings.hidden
        chain = make_chain([read, *settings.classifier, classes], LEAKY_SLOPE)
        self._classifier = LayeredModel(chain, bias_start="uniform")
        self.shapes = self._layers.shapes | self._classifier.shapes
        self.macs, self.first_macs, self.elementwise = self._layers.count(self.length)
        self.macs += self._classifier.macs
        self.first_macs += len(ways) * 4 * settings.hidden * self.length * features
        self.elementwise += self._classifier.elementwise
        self.saved_activations = self._layers.count_saved(self.length)

    def init(self, draw: Draw) -> Tensors:
        return self._layers.init(draw) | self._classifier.init(draw)

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        x = x.unflatten(2, (self.length, -1)) if x.dim() == 3 else x
        x = self._layers.run(params, x.expand(len(params["bias0"]), -1, -1, -1))
        last = x[:, :, -1]
        if len(self._layers.ways) == 2:
            ahead, back = last.chunk(2, -1)
            last = torch.cat([ahead, back, x[:, :, 0, self._layers.hidden :], ahead], -1)
        return self._classifier.logits(params, last)


@dataclass(frozen=True)
class LstmLayers:
    """Layers of LSTM cells, one above the other, for rows with own parameters.

    Layer l has in direction d the parameters "input{l}{d}" [features, 4 hidden], "hidden{l}{d}"
    [hidden, 4 hidden], "input_bias{l}{d}" and "hidden_bias{l}{d}" [4 hidden].

    Parameters
    ----------
    features : int
        Numbers of a position.
    hidden : int
        Units of a layer in each direction.
    layers : int
        Number of layers.
    ways : tuple of str
        Names of the directions; the second one reads a sequence from its end.
    """

    features: int
    hidden: int
    layers: int
    ways: tuple[str, ...] = ("",)

    @property
    def shapes(self) -> Shapes:
        """The shape of each parameter in one row."""
        shapes: Shapes = {}
        for layer in range(self.layers):
            inputs = len(self.ways) * self.hidden if layer else self.features
            for way in self.ways:
                shapes[f"input{layer}{way}"] = (inputs, 4 * self.hidden)
                shapes[f"hidden{layer}{way}"] = (self.hidden, 4 * self.hidden)
                shapes[f"input_bias{layer}{way}"] = (4 * self.hidden,)
                shapes[f"hidden_bias{layer}{way}"] = (4 * self.hidden,)
        return shapes

    def init(self, draw: Draw) -> Tensors:
        """Draw parameters uniform in +-1/sqrt(hidden)."""
        scale = self.hidden**-0.5
        return {n: (2.0 * draw(n, shape) - 1.0) * scale for n, shape in self.shapes.items()}

    def run(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Compute the states [n, B, length, ways hidden] of x [n, B, length, features]."""
        n, samples, length = x.shape[:3]
        for layer in range(self.layers):
            w, u, b, c = (
                torch.cat([params[f"{kind}{layer}{way}"] for way in self.ways])
                for kind in ("input", "hidden", "input_bias", "hidden_bias")
            )
            if len(self.ways) == 2:
                x = torch.cat([x, x.flip(2)])
            z = torch.baddbmm((b + c)[:, None], x.flatten(1, 2), w)
            x = compute_states(z.unflatten(1, (samples, length)), u)
            if len(self.ways) == 2:
                x = torch.cat([x[:n], x[n:].flip(2)], -1)
        return x

    def count(self, length: int) -> tuple[int, int, int]:
        """Count the MACs of a sequence, those with the states before it, and other operations."""
        products = sum(math.prod(shape) for shape in self.shapes.values() if len(shape) == 2)
        units = self.layers * len(self.ways) * self.hidden
        # At a position two biases and h U are added to the four gates, of which three are logistic
        # (3 each) and one is tanh; then f c + i g and o tanh(c).
        return length * products, 4 * self.hidden * units, 23 * length * units

    def count_saved(self, length: int) -> int:
        """Count what autograd keeps: the gates before and after, both states and tanh(c)."""
        return length * self.layers * len(self.ways) * 11 * self.hidden


def compute_states(z: Tensor, u: Tensor) -> Tensor:
    """Compute states [n, B, length, hidden] from the gates' inputs and recurrent weights.

    z: [n, B, length, 4 hidden]. u: [n, hidden, 4 hidden].
    """
    h = c = z.new_zeros(*z.shape[:2], u.shape[1])
    states = []
    for at_step in z.unbind(2):
        i, f, g, o = torch.baddbmm(at_step, h, u).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 2)


class TokenLstm(Model):
    """Predict the next token at every position of a sequence by an LSTM.

    Tokens are embedded in a few numbers, layers of LSTM cells read the sequence, and a fully
    connected layer scores the next token from the state at each position. It is the model of LEAF's
    Shakespeare (an embedding of 8 and two layers of 256 units), with scores at every position in
    place of the last one. The embedding starts uniform in +-1, the LSTM in +-1/sqrt(hidden), and
    the last layer in +-1/sqrt(fan_in), with biases too.

    The parameters are "embedding" [tokens, embedding]; of layer l "input{l}" [features, 4 hidden],
    "hidden{l}" [hidden, 4 hidden], "input_bias{l}" and "hidden_bias{l}" [4 hidden]; and
    "weight0" [hidden, tokens] and "bias0" [tokens].

    References
    ----------
    Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
    Hochreiter, Schmidhuber 1997, "Long Short-Term Memory".
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
        self._top = LayeredModel(make_chain([settings.hidden, classes]), bias_start="uniform")
        self.shapes = {"embedding": (classes, settings.embedding)} | self._layers.shapes
        self.shapes |= self._top.shapes
        self.macs, self.first_macs, self.elementwise = self._layers.count(self.length)
        self.macs += self.length * settings.hidden * classes
        self.elementwise += self.length * LOSS * classes
        self.saved_activations = self._layers.count_saved(self.length) + self.length * classes

    def init(self, draw: Draw) -> Tensors:
        params = {"embedding": 2.0 * draw("embedding", self.shapes["embedding"]) - 1.0}
        return params | self._layers.init(draw) | self._top.init(draw)

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        table = params["embedding"]
        first = torch.arange(len(table), device=x.device)[:, None, None] * self.tokens
        seen = functional.embedding(x.long() + first, table.flatten(0, 1))
        seen = self._layers.run(params, seen)
        scores = self._top.logits(params, seen.flatten(1, 2))
        return scores.unflatten(1, (x.shape[1], self.length))
