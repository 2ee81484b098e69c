"""Models that are chains of linear layers, which methods can factorise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models import modules
from otafl.models.base import Draw, Model, copy_contiguous, descend_
from otafl.models.layer_contract import Channels, Image, Layer
from otafl.models.layer_lists import count_costs, name_layers
from otafl.models.layers import Conv, Linear, MaxPool, Relu
from otafl.models.linear_layer import (
    BiasStart,
    add_bias,
    apply,
    apply_transposed,
    draw_dropout,
    draw_uniform_start,
)
from otafl.models.network import Network

NARROW = 32
"""Outputs up to which the weight of a layer is trained transposed, [n, N, M] in memory.

Products with matrices of few columns are two to five times slower than with matrices of few rows.
"""

NUMBERS_AT_ONCE = 1 << 21
"""Numbers that the windows of a convolution see at once, all rows together, in the computation of
scores.

At a kernel of 5 this is 25 times the images.
"""


class Pair(NamedTuple):
    """Factors of the gradient of a layer.

    Parameters
    ----------
    x : Tensor [n, B, M]
        Input of the layer. For a convolution they are the M unit vectors and a zero vector.
    g : Tensor [n, B, N]
        Gradient by the output, with the weights of the samples. The dense gradient is x^T g [n, M,
        N], and that of the bias is the sum of g over B.
    """

    x: Tensor
    g: Tensor


class LayeredModel(Model):
    """Chain of linear layers with an activation between them.

    The first layers can be convolutions with max-pooling. The backward pass is written explicitly:
    it fuses a gradient with its SGD step, and gives the factors of each gradient to methods that
    form no dense gradient. A weight can be any `LinearMap`.

    Parameters
    ----------
    layers : tuple of Layer
        Convolutions with max-pooling, if any, and then fully connected layers, with the same
        activation between all, as `linear_layer.make_chain` makes them.
    image : tuple of int, optional
        Channels, height and width of a sample; needed for convolutions.
    bias_start : {"zero", "uniform"}
        Start of biases, as in `draw_uniform_start`.
    dropout : float
        Probability with which training sets an output of a hidden fully connected layer to 0.

    Raises
    ------
    ValueError
        For other layers, such as two without an activation between them, or two slopes.
    """

    def __init__(
        self,
        layers: tuple[Layer, ...],
        image: Image | None = None,
        bias_start: BiasStart = "zero",
        dropout: float = 0.0,
    ) -> None:
        self.chain, self.bias_start = layers, bias_start
        self.leaky_slope = next((one.slope for one in layers if isinstance(one, Relu)), 0.0)
        if not layers or not _is_chain(layers, self.leaky_slope):
            raise ValueError(
                "layers must be convolutions with biases and max-pooling, if any, and then at "
                "least one fully connected layer, each numbered on its own, with the same "
                "activation between all, of a slope of at least 0; make them with make_chain; got "
                f"{', '.join(type(one).__name__ for one in layers) or 'none'}"
            )
        self.layers = tuple(one for one in layers if isinstance(one, Conv | Linear))
        self.image = (self.layers[0].inputs, 1, 1) if image is None else image
        self._linear = tuple(one for one in self.layers if isinstance(one, Linear))
        self._front, self.positions, at = [], {}, self.image
        for layer, after in zip(layers, (*layers[1:], None), strict=True):
            if isinstance(layer, Linear):
                break
            at = layer.count(at, "vertical_first").image
            if isinstance(layer, Conv):
                self.positions[layer.weight] = at[1] * at[2]
                self._front.append((layer, after.size if isinstance(after, MaxPool) else 1))
        costs = count_costs(layers, self.image)
        self.macs, self.first_macs = costs.macs, costs.first_macs
        self.elementwise = costs.elementwise
        self.is_affine = len(self.layers) == 1
        self.linear_weights = {one.weight: (one.inputs, one.outputs) for one in self.layers}
        self.shapes = {}
        for one in self.layers:
            self.shapes |= {one.weight: (one.inputs, one.outputs), one.bias: (one.outputs,)}
        self.dropout, self.uses_dropout = dropout, dropout > 0 and len(self._linear) > 1
        if self.uses_dropout:
            self.elementwise += sum(one.outputs for one in self._linear[:-1])
        self.saved_activations = sum(
            self.positions[one.weight] * (one.inputs + one.outputs) for one, _ in self._front
        )

    def init(self, draw: Draw) -> Tensors:
        return draw_uniform_start(self.layers, draw, self.bias_start)

    def draw_random_start(self, draw: Draw) -> Tensors:
        return draw_uniform_start(self.layers, draw)

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        return modules.build_chain(self.chain, self.image, params, input_shape)

    def narrow(self, channels: Channels) -> Network:
        """Convert to a network with channels(c) instead of c channels in every hidden layer.

        It has the same functions of the samples, but other parameters (`layer_lists.name_layers`).
        Weights start uniform in +-sqrt(6 / fan_in). Raises UserError if the model has dropout,
        which a network has not.
        """
        if self.uses_dropout:
            raise UserError(
                f"model.dropout: got {self.dropout:g}, but submodels train without dropout; use "
                "dropout: 0, or a method without submodels"
            )
        network = Network(self.image, name_layers(self.chain)).build_network(channels)
        network.loss = self.loss
        return network

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        return self._score(params, x)

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        if not self.uses_dropout:
            return self.logits(params, batch.x)
        return self._score(params, batch.x, batch.keys)

    def _score(self, params: Mapping[str, Any], x: Tensor, keys: Tensor | None = None) -> Tensor:
        """Compute scores, with dropout if there are keys."""
        if self._front:
            x = self._compute_features(params, x)
        x = x.flatten(2)
        for number, layer in enumerate(self._linear[:-1]):
            x = self.activate_(_apply_layer(params, layer, x))
            if keys is not None:
                x = x * self._draw_dropout(keys, number, x)
        return _apply_layer(params, self._linear[-1], x)

    def _draw_dropout(self, keys: Tensor, number: int, x: Tensor) -> Tensor:
        """Draw the factors [n, B, N] of the outputs x of a hidden layer."""
        return draw_dropout(keys, number, tuple(x.shape[1:]), self.dropout, x.dtype)

    def activate_(self, z: Tensor) -> Tensor:
        """Apply the activation in place."""
        return functional.leaky_relu_(z, self.leaky_slope) if self.leaky_slope else z.relu_()

    def backpropagate_activation(self, g: Tensor, out: Tensor) -> Tensor:
        """Compute the gradient by the input of the activation, from g by its output `out`."""
        if self.leaky_slope:  # the outputs have the signs of the inputs
            return torch.ops.aten.leaky_relu_backward(g, out, self.leaky_slope, True)
        return torch.ops.aten.threshold_backward(g, out, 0)

    def compute_pairs(self, params: Mapping[str, Any], batch: Batch) -> tuple[Tensor, list[Pair]]:
        """Compute the loss and the factors of each layer's gradient.

        Parameters
        ----------
        params : mapping of str to Tensor or LinearMap
            Parameters.
        batch : Batch
            Minibatch of each row.

        Returns
        -------
        Tensor [n]
            Loss.
        list of Pair
            Factors of each layer.
        """
        if not self._front:
            loss, out, _ = self._compute_linear_pairs(params, batch.x.flatten(2), batch)
            return loss, out
        x, differentiate_kernels = self._track_features(params, batch.x)
        loss, out, g = self._compute_linear_pairs(params, x, batch)
        grads, front = differentiate_kernels(g), []
        for layer, _ in self._front:
            by_weight, by_bias = grads[layer.weight], grads[layer.bias]
            rest = by_bias - by_weight.sum(1)
            unit = _make_unit_inputs(layer, by_weight)
            front.append(Pair(unit, torch.cat([by_weight, rest[:, None]], 1)))
        return loss, front + out

    def copy_trainable(self, params: Tensors) -> Tensors:
        return {
            name: copy_contiguous(block.mT).mT if name in self._narrow else copy_contiguous(block)
            for name, block in params.items()
        }

    def compute_gradients(self, params: Tensors, batch: Batch) -> tuple[Tensor, Tensors]:
        loss, pairs, grads = self._compute_dense_gradients(params, batch)
        for layer, (x, g) in zip(self._linear, pairs, strict=True):
            narrow = layer.outputs <= NARROW
            grads[layer.weight] = torch.bmm(g.mT, x).mT if narrow else torch.bmm(x.mT, g)
            grads[layer.bias] = g.sum(1)
        return loss, grads

    def take_sgd_step_(self, params: Tensors, batch: Batch, step: Tensor) -> Tensor:
        loss, pairs, grads = self._compute_dense_gradients(params, batch)
        for layer, (x, g) in zip(self._linear, pairs, strict=True):
            g.mul_(step[:, None, None])
            weight = params[layer.weight]
            if weight.is_contiguous():
                weight.baddbmm_(x.mT, g, alpha=-1.0)
            else:  # as `copy_trainable` lays it out
                weight.mT.baddbmm_(g.mT, x, alpha=-1.0)
            params[layer.bias].sub_(g.sum(1))
        descend_(params, grads, step)
        return loss

    @functools.cached_property
    def _narrow(self) -> frozenset[str]:
        """The weights that are trained transposed."""
        return frozenset(layer.weight for layer in self._linear if layer.outputs <= NARROW)

    def _compute_dense_gradients(
        self, params: Tensors, batch: Batch
    ) -> tuple[Tensor, list[Pair], Tensors]:
        """Compute loss, pairs of the fully connected layers, and gradients of the convolutions."""
        if not self._front:
            return *self._compute_linear_pairs(params, batch.x.flatten(2), batch)[:2], {}
        x, differentiate_kernels = self._track_features(params, batch.x)
        loss, pairs, g = self._compute_linear_pairs(params, x, batch)
        return loss, pairs, differentiate_kernels(g)

    def _compute_linear_pairs(
        self, params: Mapping[str, Any], x: Tensor, batch: Batch
    ) -> tuple[Tensor, list[Pair], Tensor]:
        """Compute the loss [n], pairs of the fully connected layers, and the gradient by x."""
        inputs, factors = [x], []
        for number, layer in enumerate(self._linear[:-1]):
            inputs.append(self.activate_(_apply_layer(params, layer, inputs[-1])))
            if self.uses_dropout and batch.keys is not None:
                factors.append(self._draw_dropout(batch.keys, number, inputs[-1]))
                inputs[-1].mul_(factors[-1])
        z = _apply_layer(params, self._linear[-1], inputs[-1])
        loss, g = self._compute_score_gradient_(z, batch)
        out = [Pair(inputs[-1], g)]
        for index in range(len(inputs) - 1, -1 if self._front else 0, -1):
            g = apply_transposed(params[self._linear[index].weight], g)
            if index:
                g = self.backpropagate_activation(g, inputs[index])
                if factors:  # a positive factor leaves the sign of an output
                    g = g * factors[index - 1]
                out.append(Pair(inputs[index - 1], g))
        return loss, out[::-1], g

    def _compute_score_gradient_(self, z: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss [n] and its gradient by the scores z, which are overwritten."""
        return self.loss.compute_gradient_(z, batch)

    def _compute_features(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Compute the inputs of the fully connected layers, a part of the samples at a time."""
        blocks = [params[name] for layer, _ in self._front for name in (layer.weight, layer.bias)]
        if len(x) > 1 and all(isinstance(one, Tensor) and len(one) == 1 for one in blocks):
            merged = self._compute_features(params, x.flatten(0, 1)[None])  # in one convolution
            return merged.unflatten(1, x.shape[:2])[0]
        rows = self._count_rows(params, x)
        largest = max(self.positions[layer.weight] * layer.inputs for layer, _ in self._front)
        parts = x.split(max(1, NUMBERS_AT_ONCE // (rows * largest)), 1)
        kernels = self._form_kernels(params, rows)
        features = [self._convolve(kernels, part) for part in parts]
        return features[0] if len(parts) == 1 else torch.cat(features, 1)

    def _count_rows(self, params: Mapping[str, Any], x: Tensor) -> int:
        """Count the rows of samples and of the parameters of convolutions."""
        blocks = [params[name] for layer, _ in self._front for name in (layer.weight, layer.bias)]
        return max(len(x), *(len(one) for one in blocks if isinstance(one, Tensor)))

    def _form_kernels(self, params: Mapping[str, Any], n: int) -> Tensors:
        """Return the dense weights [n, M, N] and the biases [n, N] of the convolutions.

        A linear map gives them as its outputs of unit vectors and of a zero vector. The latter is
        0, or the bias of a map that has one.
        """
        kernels: Tensors = {}
        for layer, _ in self._front:
            weight, bias = params[layer.weight], params[layer.bias].expand(n, -1)
            if isinstance(weight, Tensor):
                weight = weight.expand(n, -1, -1)
            else:
                outputs = weight.forward(_make_unit_inputs(layer, bias))
                weight, bias = outputs[:, :-1] - outputs[:, -1:], bias + outputs[:, -1]
            kernels |= {layer.weight: weight, layer.bias: bias}
        return kernels

    def _convolve(self, kernels: Tensors, x: Tensor) -> Tensor:
        """Apply the convolutions with their dense kernels; the features are [n, B, H W C].

        They are one grouped convolution on the rows' images side by side, [B, n C, H, W]. On a CPU
        core (10 rows of 6 images) this is 2 to 3 times faster than dense products with patches of
        images. Images have their channels last in memory, where pooling is fastest.
        """
        images = x.view(*x.shape[:2], *self.image).transpose(0, 1).flatten(1, 2)
        images = images.contiguous(memory_format=torch.channels_last)
        for layer, pool in self._front:
            bias = kernels[layer.bias]
            sides = layer.kernel, layer.kernel, -1
            weight = kernels[layer.weight].unflatten(1, sides).permute(0, 4, 1, 2, 3)
            weight = weight.contiguous().flatten(0, 1).permute(0, 3, 1, 2)
            window, groups = (layer.stride, layer.padding, 1), images.shape[1] // layer.channels
            z = functional.conv2d(images, weight, bias.flatten(), *window, groups)
            # where pooling is fastest
            z = z.contiguous(memory_format=torch.channels_last)
            images = self.activate_(functional.max_pool2d(z, pool) if pool > 1 else z)
        return images.unflatten(1, (len(bias), -1)).permute(1, 0, 3, 4, 2).flatten(2)

    def _track_features(
        self, params: Mapping[str, Any], x: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], Tensors]]:
        """Compute the features, and a function of their gradient for those of the kernels."""
        kernels = self._form_kernels(params, self._count_rows(params, x))
        with torch.inference_mode(False), torch.enable_grad():
            leaves = {name: block.clone().requires_grad_() for name, block in kernels.items()}
            features = self._convolve(leaves, x.clone())

        def differentiate_kernels(g: Tensor) -> Tensors:
            with torch.inference_mode(False):
                grads = torch.autograd.grad(features, list(leaves.values()), g)
            return dict(zip(leaves, grads, strict=True))

        return features.detach(), differentiate_kernels


def _is_chain(layers: tuple[Layer, ...], slope: float) -> bool:
    """Return whether layers are as `make_chain` makes them, with activations of this slope."""
    expected: list[Layer] = []
    for before, layer in pairwise((None, *layers)):
        if isinstance(layer, Conv | Linear):
            is_last = layer is layers[-1]
            if (layer.last, layer.numbered, layer.has_bias) != (is_last, True, True) or layer.rank:
                return False
            if isinstance(layer, Conv) and any(isinstance(one, Linear) for one in expected):
                return False
            expected += [Relu(slope), layer] if expected else [layer]
        elif isinstance(layer, MaxPool) and isinstance(before, Conv):
            expected.append(layer)
    numbers = [one.name for one in expected if isinstance(one, Conv | Linear)]
    is_valid = slope >= 0 and len(set(numbers)) == len(numbers) and isinstance(layers[-1], Linear)
    return is_valid and [*layers] == expected


def _make_unit_inputs(layer: Conv, like: Tensor) -> Tensor:
    """Make the unit vectors and a zero vector [n, M + 1, M], for a tensor like [n, ...]."""
    unit = torch.eye(layer.inputs + 1, layer.inputs, dtype=like.dtype, device=like.device)
    return unit.expand(len(like), -1, -1)


def _apply_layer(params: Mapping[str, Any], layer: Linear, x: Tensor) -> Tensor:
    """Compute x W + b [n, B, N] for x [n or 1, B, M]."""
    return add_bias(apply(params[layer.weight], x), params[layer.bias])
