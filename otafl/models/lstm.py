"""Long short-term memory, then fully connected layers, for sequences (LSTM).

It is the sentiment model of Shi et al. 2023, appendix C, and (bidirectional, classifier [5000]) of
its code. Samples are sequences [length, features], or [length] of single numbers. The classifier
has leaky ReLU between its layers. Its input is the last state of the upper layer. With two
directions it is both states at the last position and the final states of both directions, so the
forward one occurs twice. Weights and biases start uniform, in +-1/sqrt(hidden) in the LSTM and
+-1/sqrt(fan_in) in the classifier.

References
----------
Hochreiter, Schmidhuber 1997, "Long Short-Term Memory".
Gers, Schmidhuber, Cummins 2000, "Learning to Forget: Continual Prediction with LSTM".
Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated
    Learning", appendix C.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.models.base import LOSS, Draw, HiddenWidths, Model, ModelSettings
from otafl.models.linear_layer import draw_uniform_start, number_layers


class Lstm(Model):
    r"""LSTM with forget gates.

    Layer l has in direction d, "ahead" or "back", the parameters "input{l}_{d}" W [features, 4
    hidden] and "hidden{l}_{d}" U [hidden, 4 hidden], with columns in the order i, f, g, o, and
    "input_bias{l}_{d}" and "hidden_bias{l}_{d}" [4 hidden]. The classifier has "weight{i}" and
    "bias{i}".

    Notes
    -----
    The gates i, f, o are logistic and g is tanh of x W + b + h U + b', with two biases as in
    torch.nn.LSTM, of which SGD moves each:

    .. math::

        c \leftarrow f c + i g, \quad h \leftarrow o \tanh(c)

    Directions of a layer are rows too, so that a bidirectional layer takes as many calls as one
    direction.

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
        leaky_slope: float = Field(0.1, ge=0, lt=1)
        """slope below zero between the classifier's layers; 0 is ReLU"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.length, features = find_sequence_shape(input_shape, settings.name)
        self.hidden, self._layers = settings.hidden, settings.layers
        self._directions = ("ahead", "back") if settings.bidirectional else ("ahead",)
        self._slope = settings.leaky_slope
        ways, wide = len(self._directions), 4 * settings.hidden
        self.shapes = {}
        for layer in range(settings.layers):
            inputs = features if layer == 0 else ways * settings.hidden
            for way in self._directions:
                self.shapes[f"input{layer}_{way}"] = (inputs, wide)
                self.shapes[f"hidden{layer}_{way}"] = (settings.hidden, wide)
                self.shapes[f"input_bias{layer}_{way}"] = (wide,)
                self.shapes[f"hidden_bias{layer}_{way}"] = (wide,)
        steps = sum(rows * wide for rows, *more in self.shapes.values() if more)
        read = 4 * settings.hidden if settings.bidirectional else settings.hidden
        widths = [read, *settings.classifier, classes]
        self._classifier = number_layers(pairwise(widths))
        self._recurrent = tuple(self.shapes)
        for one in self._classifier:
            self.shapes[one.weight] = (one.inputs, one.outputs)
            self.shapes[one.bias] = (one.outputs,)
        self.macs = self.length * steps + sum(one.macs for one in self._classifier)
        at_start = settings.layers * settings.hidden  # the states before the first position
        self.first_macs = ways * wide * (self.length * features + at_start)
        # At a position two biases and h U are added to the four gates, of which three are logistic
        # (3 each) and one is tanh; then f c + i g and o tanh(c).
        units = self.length * settings.layers * ways * settings.hidden
        self.elementwise = 23 * units + sum(one.elementwise for one in self._classifier)
        self.elementwise += (LOSS - 1) * classes  # instead of an activation
        # Of each step autograd keeps the four gates before and after, both states and tanh(c).
        self.saved_activations = self.length * settings.layers * ways * 11 * settings.hidden

    def init(self, draw: Draw) -> Tensors:
        params = {
            name: (2.0 * draw(name, self.shapes[name]) - 1.0) / self.hidden**0.5
            for name in self._recurrent
        }
        return params | draw_uniform_start(self._classifier, draw, "uniform")

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        rows = params["input_bias0_ahead"].shape[0]
        x = x.unflatten(2, (self.length, -1)) if x.dim() == 3 else x
        x = x.expand(rows, -1, -1, -1)
        for layer in range(self._layers):
            x = self._run_layer(params, layer, x)
        last = x[:, :, -1]
        if len(self._directions) == 2:
            ahead, back = last.chunk(2, -1)
            last = torch.cat([ahead, back, x[:, :, 0, self.hidden :], ahead], -1)
        *front, top = self._classifier
        for one in front:
            z = torch.baddbmm(params[one.bias][:, None], last, params[one.weight])
            last = functional.leaky_relu(z, self._slope)
        return torch.baddbmm(params[top.bias][:, None], last, params[top.weight])

    def _run_layer(self, params: Mapping[str, Any], layer: int, x: Tensor) -> Tensor:
        """Compute the states [n, B, length, directions hidden] of x [n, B, length, M]."""
        w, u, b, c = (
            torch.cat([params[f"{kind}{layer}_{way}"] for way in self._directions])
            for kind in ("input", "hidden", "input_bias", "hidden_bias")
        )
        n, samples = x.shape[:2]
        ways = x if len(self._directions) == 1 else torch.cat([x, x.flip(2)])
        z = torch.baddbmm((b + c)[:, None], ways.flatten(1, 2), w)
        states = compute_states(z.unflatten(1, (samples, self.length)), u)
        if len(self._directions) == 1:
            return states
        return torch.cat([states[:n], states[n:].flip(2)], -1)


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


def find_sequence_shape(shape: tuple[int, ...], model: str) -> tuple[int, int]:
    """Return length and features of samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    model : str
        Name of the model in the scenario, for the message.

    Returns
    -------
    tuple of int
        Length and features.

    Raises
    ------
    UserError
        If the samples are not sequences.
    """
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) == 1:
        return shape[0], 1
    raise UserError(
        f"model.name: '{model}' needs sequences of shape [length, features] or [length]; a sample "
        f"of the data set has shape {list(shape)}"
    )
