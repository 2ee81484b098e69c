"""Long short-term memory (Hochreiter and Schmidhuber 1997) with forget gates (Gers, Schmidhuber,
Cummins 2000), all rows at once:

    i, f, o = sigmoid(.), g = tanh(.) of x W + b + h U + b'
    c <- f c + i g
    h <- o tanh(c)

with two biases as in torch.nn.LSTM, each of which a step of SGD moves. The directions of a layer
are rows as well, so that a bidirectional one takes as many operations as one direction does.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Blocks
from otafl.core.errors import UserError
from otafl.models.base import Draw, Layer, Model, uniform_start
from otafl.models.config import LstmConfig


class Lstm(Model):
    """Parameters of layer l in direction d ("ahead", "back"): "input{l}_{d}" W [features, 4 hidden]
    and "hidden{l}_{d}" U [hidden, 4 hidden], their columns in the order i, f, g, o, and
    "input_bias{l}_{d}", "hidden_bias{l}_{d}" [4 hidden]; "weight{i}", "bias{i}" of the classifier.
    """

    def __init__(self, config: LstmConfig, input_shape: tuple[int, ...], classes: int) -> None:
        self.length, features = sequence_shape(input_shape)
        self.hidden, self._layers = config.hidden, config.layers
        self._directions = ("ahead", "back") if config.bidirectional else ("ahead",)
        self._slope = config.leaky_slope
        ways, wide = len(self._directions), 4 * config.hidden
        self.shapes = {}
        for layer in range(config.layers):
            inputs = features if layer == 0 else ways * config.hidden
            for way in self._directions:
                self.shapes[f"input{layer}_{way}"] = (inputs, wide)
                self.shapes[f"hidden{layer}_{way}"] = (config.hidden, wide)
                self.shapes[f"input_bias{layer}_{way}"] = (wide,)
                self.shapes[f"hidden_bias{layer}_{way}"] = (wide,)
        steps = sum(rows * wide for rows, *more in self.shapes.values() if more)
        read = 4 * config.hidden if config.bidirectional else config.hidden
        widths = [read, *config.classifier, classes]
        self._classifier = tuple(
            Layer(f"weight{i}", f"bias{i}", m, n) for i, (m, n) in enumerate(pairwise(widths))
        )
        self._recurrent = tuple(self.shapes)
        for one in self._classifier:
            self.shapes[one.weight] = (one.inputs, one.outputs)
            self.shapes[one.bias] = (one.outputs,)
        self.macs = self.length * steps + sum(one.macs for one in self._classifier)
        # Of each step autograd keeps the four gates before and after, both states and tanh(c).
        self.kept_reals = self.length * config.layers * ways * 11 * config.hidden

    def init(self, draw: Draw) -> Blocks:
        params = {
            name: (2.0 * draw(name, self.shapes[name]) - 1.0) / self.hidden**0.5
            for name in self._recurrent
        }
        return params | uniform_start(self._classifier, draw, "uniform")

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        rows = params["input_bias0_ahead"].shape[0]
        x = x.unflatten(2, (self.length, -1)) if x.dim() == 3 else x
        x = x.expand(rows, -1, -1, -1)
        for layer in range(self._layers):
            x = self._layer(params, layer, x)
        last = x[:, :, -1]
        if len(self._directions) == 2:
            ahead, back = last.chunk(2, -1)
            last = torch.cat([ahead, back, x[:, :, 0, self.hidden :], ahead], -1)
        *front, top = self._classifier
        for one in front:
            z = torch.baddbmm(params[one.bias][:, None], last, params[one.weight])
            last = functional.leaky_relu(z, self._slope)
        return torch.baddbmm(params[top.bias][:, None], last, params[top.weight])

    def _layer(self, params: Mapping[str, Any], layer: int, x: Tensor) -> Tensor:
        """The states [n, B, length, directions hidden] at each position of x [n, B, length, M]."""
        w, u, b, c = (
            torch.cat([params[f"{kind}{layer}_{way}"] for way in self._directions])
            for kind in ("input", "hidden", "input_bias", "hidden_bias")
        )
        n, samples = x.shape[:2]
        ways = x if len(self._directions) == 1 else torch.cat([x, x.flip(2)])
        z = torch.baddbmm((b + c)[:, None], ways.flatten(1, 2), w)
        states = _run(z.unflatten(1, (samples, self.length)), u)
        if len(self._directions) == 1:
            return states
        return torch.cat([states[:n], states[n:].flip(2)], -1)


def _run(z: Tensor, u: Tensor) -> Tensor:
    """States [n, B, length, hidden] from what the inputs give to the gates, z [n, B, length, 4
    hidden], and the recurrent weights u [n, hidden, 4 hidden]."""
    h = c = z.new_zeros(*z.shape[:2], u.shape[1])
    states = []
    for at_step in z.unbind(2):
        i, f, g, o = torch.baddbmm(at_step, h, u).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 2)


def sequence_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Length and features of samples of this shape."""
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) == 1:
        return shape[0], 1
    raise UserError(
        f"model.name: 'lstm' needs sequences, but a sample of the data set has shape "
        f"{list(shape)}; [length, features] or [length] would do"
    )
