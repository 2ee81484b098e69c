"""What a model is: pure functions of parameters that carry a leading row dimension.

One row is one (trial, device) pair with parameters of its own; x is [n, B, *input], or
[1, B, *input] where all rows see the same samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from otafl.contracts import Batch, Blocks

Draw = Callable[[str, tuple[int, ...]], Tensor]
"""(name, shape) -> [S, *shape] uniform in (0, 1): where a model's start comes from."""

Shapes = dict[str, tuple[int, ...]]


def flatten(blocks: Blocks) -> Tensor:
    """Blocks [n, *shape] side by side as [n, P]; no copy if there is only one."""
    columns = [block.flatten(1) for block in blocks.values()]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def unflatten(flat: Tensor, shapes: Shapes) -> Blocks:
    """Views [n, *shape] into flat [n, P], in the order of `shapes`."""
    parts = flat.split([math.prod(shape) for shape in shapes.values()], 1)
    return {
        name: part.view(len(flat), *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


class Model(ABC):
    """A model with any batched forward pass; gradients by autograd."""

    shapes: Shapes
    macs: int
    """Multiplications of a forward pass of one sample."""

    @abstractmethod
    def init(self, draw: Draw) -> Blocks:
        """Start parameters [S, *shape]."""

    @abstractmethod
    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Class scores [n, B, classes]."""

    def gradients(self, params: Blocks, batch: Batch) -> tuple[Tensor, Blocks]:
        """Cross-entropy loss [n] of each row and its gradient [n, *shape]."""
        with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
            leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
            weight = None if batch.weight is None else batch.weight.clone()
            batch = Batch(batch.x.clone(), batch.y.clone(), weight)
            loss = cross_entropy(self.logits(leaves, batch.x), batch)
            grads = torch.autograd.grad(loss.sum(), list(leaves.values()))
        return loss.detach(), dict(zip(leaves, grads, strict=True))

    def sgd_(self, params: Blocks, batch: Batch, step: Tensor) -> Tensor:
        """One SGD step of size step [n], in place; returns the loss [n] before it."""
        loss, grads = self.gradients(params, batch)
        for name, grad in grads.items():
            params[name].addcmul_(grad, step.view(-1, *[1] * (grad.dim() - 1)), value=-1.0)
        return loss

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def training_flops(self, samples: int) -> float:
        """Operations of forward and backward passes: a multiplication and an addition a MAC, and
        a backward pass that costs two forward ones."""
        return 6.0 * self.macs * samples


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Weighted mean [n] over the samples of each row; logits [n, B, classes]."""
    picked = torch.log_softmax(logits, -1).gather(-1, batch.y[..., None]).squeeze(-1)
    return -picked.mean(-1) if batch.weight is None else -(picked * batch.weight).sum(-1)


class LinearMap(Protocol):
    """A weight that is not stored dense (factored, say) but acts like one [n, M, N]."""

    def forward(self, x: Tensor) -> Tensor:
        """x W: [n, B, M] -> [n, B, N]."""

    def backward(self, g: Tensor) -> Tensor:
        """g W^T: [n, B, N] -> [n, B, M]."""


def apply(weight: Tensor | LinearMap, x: Tensor) -> Tensor:
    """x W [n, B, N] for x [n or 1, B, M]."""
    if not isinstance(weight, Tensor):
        return weight.forward(x)
    return torch.bmm(x.expand(weight.shape[0], -1, -1), weight)


def apply_transposed(weight: Tensor | LinearMap, g: Tensor) -> Tensor:
    """g W^T [n, B, M] for g [n, B, N]."""
    return torch.bmm(g, weight.mT) if isinstance(weight, Tensor) else weight.backward(g)


@dataclass(frozen=True)
class Layer:
    """A linear layer: names of its parameters and its sides, y = x W + b, W [inputs, outputs]."""

    weight: str
    bias: str
    inputs: int
    outputs: int


class Pair(NamedTuple):
    """The gradient of a layer in the form it arises: x [n, B, M] and g [n, B, N], the dense
    gradient being x^T g [n, M, N]. Sample weights are in g."""

    x: Tensor
    g: Tensor


class LayeredModel(Model):
    """A chain of linear layers with ReLU between them. The backward pass is written out: it fuses
    a gradient with its SGD step, and it hands the factors of each gradient to methods that never
    form a dense one. A weight may be any `LinearMap`."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self.layers = layers
        self.macs = sum(layer.inputs * layer.outputs for layer in layers)
        self.shapes = {}
        for layer in layers:
            self.shapes[layer.weight] = (layer.inputs, layer.outputs)
            self.shapes[layer.bias] = (layer.outputs,)

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        x = x.flatten(2)
        for layer in self.layers[:-1]:
            x = apply(params[layer.weight], x).add_(params[layer.bias][:, None]).relu_()
        last = self.layers[-1]
        return apply(params[last.weight], x).add_(params[last.bias][:, None])

    def pairs(self, params: Mapping[str, Any], batch: Batch) -> tuple[Tensor, list[Pair]]:
        """Loss [n] and each layer's gradient as a pair."""
        inputs = [batch.x.flatten(2)]
        for layer in self.layers[:-1]:
            z = apply(params[layer.weight], inputs[-1])
            inputs.append(z.add_(params[layer.bias][:, None]).relu_())
        last = self.layers[-1]
        z = apply(params[last.weight], inputs[-1]).add_(params[last.bias][:, None])
        loss, g = _cross_entropy_gradient(z, batch)
        out = [Pair(inputs[-1], g)]
        for index in range(len(self.layers) - 1, 0, -1):
            g = apply_transposed(params[self.layers[index].weight], g)
            g = torch.ops.aten.threshold_backward(g, inputs[index], 0)
            out.append(Pair(inputs[index - 1], g))
        return loss, out[::-1]

    def gradients(self, params: Blocks, batch: Batch) -> tuple[Tensor, Blocks]:
        loss, pairs = self.pairs(params, batch)
        grads = {}
        for layer, (x, g) in zip(self.layers, pairs, strict=True):
            grads[layer.weight] = torch.bmm(x.mT, g)
            grads[layer.bias] = g.sum(1)
        return loss, grads

    def sgd_(self, params: Blocks, batch: Batch, step: Tensor) -> Tensor:
        loss, pairs = self.pairs(params, batch)
        for layer, (x, g) in zip(self.layers, pairs, strict=True):
            g.mul_(step[:, None, None])
            params[layer.weight].baddbmm_(x.mT, g, alpha=-1.0)
            params[layer.bias].sub_(g.sum(1))
        return loss


def _cross_entropy_gradient(z: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Loss [n] and its gradient [n, B, classes] by the logits z, which are overwritten. Written
    out, since torch's softmax over a short last dimension is several times slower."""
    index = batch.y[..., None]
    z.sub_(z.amax(-1, keepdim=True))
    picked = z.gather(-1, index)
    g = z.exp_()
    total = g.sum(-1, keepdim=True)
    loss = total.log().sub_(picked)
    g.div_(total)
    g.scatter_add_(-1, index, total.new_full((), -1.0).expand_as(total))
    if batch.weight is None:
        return loss.mean((1, 2)), g.mul_(1.0 / z.shape[1])
    weight = batch.weight[..., None]
    return (loss * weight).sum((1, 2)), g.mul_(weight)
