"""What a model is: pure functions of parameters that carry a leading row dimension.

One row is one (trial, device) pair with parameters of its own; x is [n, B, *input], or
[1, B, *input] where all rows see the same samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Blocks
from otafl.models import convolution
from otafl.models.convolution import Kept
from otafl.models.geometry import Window

Draw = Callable[[str, tuple[int, ...]], Tensor]
"""(name, shape) -> [S, *shape] uniform in (0, 1): where a model's start comes from."""

Shapes = dict[str, tuple[int, ...]]

PATCHES_AT_ONCE = 1 << 21
"""Numbers in the largest matrix of patches, all rows together, that scores are computed from at a
time: 25 times its images at a kernel of 5."""


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
    kept_reals: int = 0
    """Real numbers that one sample adds to the memory of a training step, where they are many."""
    norms: tuple[str, ...] = ()
    """Names of the parameters of normalisation layers."""
    batch_norms: bool = False
    """Whether it normalises by statistics of the batch; `moments` gives them."""

    @abstractmethod
    def init(self, draw: Draw) -> Blocks:
        """Start parameters [S, *shape]."""

    @abstractmethod
    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Class scores [n, B, classes]."""

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Blocks:
        """Statistics [n, *shape] of batch normalisations on a batch, which `logits` uses where it
        finds them in its `params`."""
        return {}

    def training_logits(
        self, params: Mapping[str, Any], x: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Scores as they are in training. weight: of the samples, [n, B]; those of weight 0 are
        padding, which changes nothing."""
        return self.logits(params, x)

    def gradients(self, params: Blocks, batch: Batch) -> tuple[Tensor, Blocks]:
        """Cross-entropy loss [n] of each row and its gradient [n, *shape]."""
        with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
            leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
            weight = None if batch.weight is None else batch.weight.clone()
            batch = Batch(batch.x.clone(), batch.y.clone(), weight)
            loss = cross_entropy(self.training_logits(leaves, batch.x, batch.weight), batch)
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
    """A linear layer: names of its parameters and its sides, y = x W + b, W [inputs, outputs]. With
    a window it is a convolution: linear in the k k C numbers that the window sees at a position,
    by the same weight and bias at all of them."""

    weight: str
    bias: str
    inputs: int
    outputs: int
    window: Window | None = None

    @property
    def positions(self) -> int:
        """How often the weight is applied to one sample."""
        return 1 if self.window is None else self.window.positions

    @property
    def macs(self) -> int:
        return self.positions * self.inputs * self.outputs


class Pair(NamedTuple):
    """The gradient of a layer in the form it arises: x [n, B, M] and g [n, B, N], the dense
    gradient being x^T g [n, M, N]. Sample weights are in g. Of a convolution B counts the positions
    of each sample one by one."""

    x: Tensor
    g: Tensor


def uniform_start(
    layers: Sequence[Layer], draw: Draw, bias: Literal["zero", "uniform"] = "zero"
) -> Blocks:
    """Weights uniform in +-1/sqrt(fan_in), biases zero or uniform in the same range."""
    params = {}
    for layer in layers:
        uniform = draw(layer.weight, (layer.inputs, layer.outputs))
        params[layer.weight] = (2.0 * uniform - 1.0) / layer.inputs**0.5
        if bias == "zero":
            params[layer.bias] = uniform.new_zeros(uniform.shape[0], layer.outputs)
        else:
            uniform = draw(layer.bias, (layer.outputs,))
            params[layer.bias] = (2.0 * uniform - 1.0) / layer.inputs**0.5
    return params


class LayeredModel(Model):
    """A chain of linear layers with ReLU between them (leaky, if `leaky_slope` > 0), the first ones
    possibly convolutions with max-pooling. The backward pass is written out: it fuses a gradient
    with its SGD step, and it hands the factors of each gradient to methods that never form a dense
    one. A weight may be any `LinearMap`."""

    def __init__(self, layers: tuple[Layer, ...], leaky_slope: float = 0.0) -> None:
        if leaky_slope < 0:
            raise ValueError(f"leaky_slope: {leaky_slope}, must not be negative")
        self.layers, self.leaky_slope = layers, leaky_slope
        self.macs = sum(layer.macs for layer in layers)
        self.shapes = {}
        for layer in layers:
            self.shapes[layer.weight] = (layer.inputs, layer.outputs)
            self.shapes[layer.bias] = (layer.outputs,)
        front = [(layer, layer.window) for layer in layers if layer.window is not None]
        self._front = tuple(front)
        self._linear = layers[len(front) :]
        if not self._linear or any(layer.window is not None for layer in self._linear):
            raise ValueError("convolutions come before the fully connected layers, one at least")
        self.kept_reals = sum(w.positions * (one.inputs + one.outputs) for one, w in front)

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        if self._front:
            x = self._features(params, x)
        x = x.flatten(2)
        for layer in self._linear[:-1]:
            x = self.activate_(apply(params[layer.weight], x).add_(params[layer.bias][:, None]))
        last = self._linear[-1]
        return apply(params[last.weight], x).add_(params[last.bias][:, None])

    def activate_(self, z: Tensor) -> Tensor:
        """The activation, in place."""
        return functional.leaky_relu_(z, self.leaky_slope) if self.leaky_slope else z.relu_()

    def gate(self, g: Tensor, out: Tensor) -> Tensor:
        """The gradient by what the activation saw, from g by what it gave, `out`."""
        if self.leaky_slope:  # the outputs have the signs of the inputs
            return torch.ops.aten.leaky_relu_backward(g, out, self.leaky_slope, True)
        return torch.ops.aten.threshold_backward(g, out, 0)

    def pairs(self, params: Mapping[str, Any], batch: Batch) -> tuple[Tensor, list[Pair]]:
        """Loss [n] and each layer's gradient as a pair."""
        if not self._front:
            loss, out, _ = self._linear_pairs(params, batch.x.flatten(2), batch)
            return loss, out
        x, kept = self._on_patches(params, batch.x)
        loss, out, g = self._linear_pairs(params, x, batch)
        return loss, self._patch_pairs(params, kept, g) + out

    def gradients(self, params: Blocks, batch: Batch) -> tuple[Tensor, Blocks]:
        loss, pairs, grads = self._dense(params, batch)
        for layer, (x, g) in zip(self._linear, pairs, strict=True):
            grads[layer.weight] = torch.bmm(x.mT, g)
            grads[layer.bias] = g.sum(1)
        return loss, grads

    def sgd_(self, params: Blocks, batch: Batch, step: Tensor) -> Tensor:
        loss, pairs, grads = self._dense(params, batch)
        for layer, (x, g) in zip(self._linear, pairs, strict=True):
            g.mul_(step[:, None, None])
            params[layer.weight].baddbmm_(x.mT, g, alpha=-1.0)
            params[layer.bias].sub_(g.sum(1))
        for name, grad in grads.items():
            params[name].addcmul_(grad, step.view(-1, *[1] * (grad.dim() - 1)), value=-1.0)
        return loss

    def _dense(self, params: Blocks, batch: Batch) -> tuple[Tensor, list[Pair], Blocks]:
        """Loss, pairs of the fully connected layers, gradients of the convolutions."""
        if not self._front:
            return *self._linear_pairs(params, batch.x.flatten(2), batch)[:2], {}
        x, kept = self._beside(params, batch.x)
        loss, pairs, g = self._linear_pairs(params, x, batch)
        return loss, pairs, self._beside_gradients(params, kept, g)

    def _linear_pairs(
        self, params: Mapping[str, Any], x: Tensor, batch: Batch
    ) -> tuple[Tensor, list[Pair], Tensor]:
        """Loss [n], pairs of the fully connected layers over x [n, B, M], and what goes on to the
        convolutions: the gradient [n, B, M] by their scores, past the activation."""
        inputs = [x]
        for layer in self._linear[:-1]:
            z = apply(params[layer.weight], inputs[-1])
            inputs.append(self.activate_(z.add_(params[layer.bias][:, None])))
        last = self._linear[-1]
        z = apply(params[last.weight], inputs[-1]).add_(params[last.bias][:, None])
        loss, g = _cross_entropy_gradient(z, batch)
        out = [Pair(inputs[-1], g)]
        for index in range(len(inputs) - 1, -1 if self._front else 0, -1):
            g = apply_transposed(params[self._linear[index].weight], g)
            g = self.gate(g, inputs[index])
            if index:
                out.append(Pair(inputs[index - 1], g))
        return loss, out[::-1], g

    def _features(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """What the fully connected layers see of x, so many samples at a time."""
        dense = all(isinstance(params[layer.weight], Tensor) for layer, _ in self._front)
        see = self._beside if dense else self._on_patches
        rows = params[self._front[0][0].bias].shape[0]
        largest = max(window.positions * window.inputs for _, window in self._front)
        parts = x.split(max(1, PATCHES_AT_ONCE // (rows * largest)), 1)
        if len(parts) == 1:
            return see(params, x)[0]
        return torch.cat([see(params, part)[0] for part in parts], 1)

    def _beside(self, params: Mapping[str, Any], x: Tensor) -> tuple[Tensor, list[Kept]]:
        """The convolutions with dense weights: features [n, B, M], and what each keeps."""
        image, kept = convolution.beside(x, self._front[0][1]), []
        for layer, window in self._front:
            bias = params[layer.bias]
            z = convolution.convolve(image, params[layer.weight], bias, window)
            pooled, winners = convolution.pool(z, window.pool)
            kept.append(Kept(image, image, z, winners))
            image = self.activate_(pooled)
        return convolution.features_beside(image, bias.shape[0]), kept

    def _beside_gradients(self, params: Blocks, kept: list[Kept], g: Tensor) -> Blocks:
        """Gradients of the convolutions from g [n, B, M] by the scores of the last one."""
        grads = {}
        above: Tensor | None = convolution.as_images_beside(g, self._front[-1][1])
        for index in range(len(kept) - 1, -1, -1):
            (layer, window), one = self._front[index], kept[index]
            assert above is not None
            by_z = convolution.unpool(above, one, window.pool)
            above, grads[layer.weight], grads[layer.bias] = convolution.convolve_backward(
                by_z, one.image, params[layer.weight], window, by_image=index > 0
            )
            if above is not None:
                above = self.gate(above, one.image)
        return grads

    def _on_patches(self, params: Mapping[str, Any], x: Tensor) -> tuple[Tensor, list[Kept]]:
        """The convolutions with weights of any kind, as `_beside`."""
        image, kept = convolution.images(x, self._front[0][1]), []
        n = x.shape[0]
        for layer, window in self._front:
            met = convolution.patches(image, n, window)
            z = apply(params[layer.weight], met).add_(params[layer.bias][:, None])
            n = z.shape[0]
            z = convolution.scores(z, window)
            pooled, winners = convolution.pool(z, window.pool)
            kept.append(Kept(image, met, z, winners))
            image = self.activate_(pooled)
        return convolution.features(image, n), kept

    def _patch_pairs(self, params: Mapping[str, Any], kept: list[Kept], g: Tensor) -> list[Pair]:
        """Pairs of the convolutions, as `_beside_gradients`."""
        n, out = g.shape[0], []
        above = convolution.as_images(g, self._front[-1][1])
        for index in range(len(kept) - 1, -1, -1):
            (layer, window), one = self._front[index], kept[index]
            by_z = convolution.unpool(above, one, window.pool)
            g = by_z.permute(0, 2, 3, 1).reshape(n, -1, layer.outputs)
            out.append(Pair(one.met, g))
            if index:
                above = convolution.fold(apply_transposed(params[layer.weight], g), window)
                above = self.gate(above, one.image)
        return out[::-1]


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
