"""SGD steps of fully connected layers, with compiled passes between the products.

Products, exponentials and logarithms stay torch's, whose last bits no other program has.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from otafl.core.compiled_module import CompiledModule, import_loops
from otafl.core.contracts import Batch, Tensors
from otafl.core.lazy import Tensor, torch
from otafl.models.linear_layer import Layer
from otafl.models.sgd_run import PlainRun, SgdRun, SgdStep

_kernel = CompiledModule("otafl.models.step_kernel")

SHARE = 0.4
"""Share of the time of a step by tensor operations that compiled passes save, about."""

MIN_OUTPUTS, MAX_OUTPUTS, MAX_SAMPLES = 2, 511, 255
"""Outputs of a layer, and samples of a minibatch, whose sums the passes add in torch's order."""

MIN_COPIED = 16
"""Samples from which a product is faster with a straight copy of a transposed weight.

With fewer samples in a minibatch the two products can also have other bits.
"""

MIN_COPIED_NUMBERS = 1 << 14
"""Elements of all rows' weights from which such a copy saves more than its call takes."""

STEPS = 16
"""Steps whose losses are computed together."""


@dataclass(frozen=True)
class LayerMemory:
    """A layer's parameters, and memory for what a step computes of it.

    Parameters
    ----------
    weight, weight_t : Tensor [n, M, N], Tensor [n, N, M]
        Weight, and its transpose.
    is_transposed : bool
        Whether the transpose is what lies in memory.
    straight : Tensor [n, M, N] or None
        Memory for a straight copy of such a weight, from which the outputs are computed.
    bias : ndarray [n, N]
        Bias.
    out : Tensor [n, B, N]
        Outputs; of the last layer also the gradient by them.
    g : Tensor [n, B, N]
        Gradient by the scores, without the step size.
    scaled : Tensor
        Gradient by the scores times the step size, [n, B, N], or [n, N, B] if the weight is
        transposed. It can share memory with `g`.
    arrays : tuple
        `out`, `g`, whether `scaled` is `g`, and `scaled`.
    """

    weight: Tensor
    weight_t: Tensor
    is_transposed: bool
    straight: Tensor | None
    bias: Any
    out: Tensor
    g: Tensor
    scaled: Tensor
    arrays: tuple[Any, Any, bool, Any]

    @staticmethod
    def allocate(
        layer: Layer, params: Tensors, size: int, *, first: bool, last: bool
    ) -> LayerMemory:
        """Allocate the memory of a layer for minibatches of `size` samples."""
        weight = params[layer.weight]
        out = weight.new_empty(weight.shape[0], size, layer.outputs)
        g = out if last else torch.empty_like(out)
        scaled = g if first else torch.empty_like(out)  # below the first layer is no gradient
        outputs = out.numpy()
        by_scores = outputs if last else g.numpy()
        turned = not weight.is_contiguous()  # as `copy_trainable` lays it out
        is_copied = turned and size >= MIN_COPIED and weight.numel() >= MIN_COPIED_NUMBERS
        if is_copied:
            is_copied = keeps_copied_bits(min(len(weight), 2), size, *weight.shape[1:])
        return LayerMemory(
            weight=weight,
            weight_t=weight.mT,
            is_transposed=turned,
            straight=weight.new_empty(weight.shape) if is_copied else None,
            bias=params[layer.bias].numpy(),
            out=out,
            g=g,
            scaled=scaled.mT if turned else scaled,
            arrays=(outputs, by_scores, first, by_scores if first else scaled.numpy()),
        )

    def multiply(self, x: Tensor) -> None:
        """Compute the outputs without the bias, from inputs x [n, B, M]."""
        weight = self.weight
        if self.straight is not None:
            weight = self.straight
            import_loops("otafl.models.transposition_kernel").copy_transposed(
                self.weight_t.numpy(), weight.numpy()
            )
        torch.bmm(x, weight, out=self.out)

    def descend_(self, x: Tensor) -> None:
        """Take the step of the weight, from inputs x [n, B, M]."""
        if self.is_transposed:
            self.weight_t.baddbmm_(self.scaled, x, alpha=-1.0)
        else:
            self.weight.baddbmm_(x.mT, self.scaled, alpha=-1.0)


class CompiledSteps:
    """SGD steps on the cross-entropy of a chain of fully connected layers.

    Parameters
    ----------
    kernel : module
        Compiled passes.
    chain : Chain
        The layers.
    params : dict of str to Tensor [n, *shape]
        Parameters, changed in place by every step.
    step : Tensor [n]
        Step size.
    size : int
        Samples of a minibatch, B.
    loss : Tensor [n]
        Sum of the losses, to which `add_losses` adds those of the steps.
    """

    def __init__(
        self,
        kernel: ModuleType,
        chain: Chain,
        params: Tensors,
        step: Tensor,
        size: int,
        loss: Tensor,
    ) -> None:
        self._kernel, self._shape = kernel, (step.shape[0], size)
        self._step, self._loss = step.contiguous().numpy(), loss.numpy()
        self._slope = self._step.dtype.type(chain.slope)
        first, last = chain.layers[0], chain.layers[-1]
        self._layers = [
            LayerMemory.allocate(one, params, size, first=one is first, last=one is last)
            for one in chain.layers
        ]
        self._equal_weight = make_equal_weights(*self._shape)
        self._is_mean, self._count = True, 0
        self._memory = step.new_empty(3, STEPS, *self._shape)
        self._totals, self._picked, self._weights = self._memory.numpy()

    def fits(self, batch: Batch) -> bool:
        """Return whether the minibatches have the rows and the size of these steps."""
        return (
            batch.x.shape[:2] == self._shape
            and batch.y.shape == self._shape
            and batch.y.is_contiguous()
            and (batch.weight is None or batch.weight.shape == self._shape)
        )

    def take_(self, batch: Batch) -> None:
        """Take a step on minibatches that fit, in place."""
        kernel, y, last = self._kernel, batch.y.numpy(), self._layers[-1]
        index, weight = self._begin_step(batch.weight)
        inputs = self._compute_scores(batch.x if batch.x.dim() == 3 else batch.x.flatten(2))
        out, g, *scaled = last.arrays
        kernel.shift_scores(out, last.bias, y, self._picked[index])
        last.out.exp_()
        kernel.form_gradient(g, y, weight, self._step, self._totals[index], *scaled, last.bias)
        self._backpropagate()
        for layer, x in zip(self._layers, inputs, strict=True):
            layer.descend_(x)

    def add_losses(self) -> None:
        """Add the losses before the steps since the last call."""
        if self._count:
            self._memory[0, : self._count].log_()
            arrays = (one[: self._count] for one in (self._totals, self._picked, self._weights))
            self._kernel.add_losses(*arrays, self._is_mean, self._loss)
            self._count = 0

    def _begin_step(self, weight: Tensor | None) -> tuple[int, Any]:
        """Return the index of a step among those without a loss, and the samples' weights."""
        is_mean = weight is None
        if self._count == STEPS or self._is_mean != is_mean:
            self.add_losses()
            self._is_mean = is_mean
        index = self._count
        self._count += 1
        if weight is None:
            return index, self._equal_weight
        self._weights[index] = weight.numpy()
        return index, self._weights[index]

    def _compute_scores(self, x: Tensor) -> list[Tensor]:
        """Compute the scores without the last bias, and return the inputs of the layers."""
        inputs = [x]
        for layer in self._layers[:-1]:
            layer.multiply(inputs[-1])
            self._kernel.activate(layer.arrays[0], layer.bias, self._slope)
            inputs.append(layer.out)
        self._layers[-1].multiply(inputs[-1])
        return inputs

    def _backpropagate(self) -> None:
        """Compute the gradients of the hidden layers, and take the steps of their biases."""
        for below in range(len(self._layers) - 2, -1, -1):
            layer, above = self._layers[below], self._layers[below + 1]
            torch.bmm(above.g, above.weight_t, out=layer.g)
            out, g, *scaled = layer.arrays
            self._kernel.backpropagate(g, out, self._slope, self._step, *scaled, layer.bias)


class Chain:
    """Fully connected layers whose SGD steps can be compiled, with the same bits.

    Compiled steps serve single precision on one thread of a CPU. Before their first use for a size
    of minibatches they compute a sample. If a bit differs from that of tensor operations on this
    processor, those remain.

    Parameters
    ----------
    layers : sequence of Layer
        Layers in their order.
    slope : float
        Slope of the activation below zero; 0 is ReLU.
    take_plain_step_ : SgdStep
        Step by tensor operations.

    Attributes
    ----------
    has_sums : bool
        Whether compiled loops add as many terms in torch's order as the layers have outputs.
    """

    def __init__(self, layers: Sequence[Layer], slope: float, take_plain_step_: SgdStep) -> None:
        self.layers, self.slope = tuple(layers), slope
        self.take_plain_step_ = take_plain_step_
        self.has_sums = all(MIN_OUTPUTS <= one.outputs <= MAX_OUTPUTS for one in layers)
        self._same_bits: dict[tuple[int, int], bool] = {}

    def start_sgd(self, params: Tensors, step: Tensor) -> SgdRun:
        """Start several steps of a size [n], as `Model.start_sgd`."""
        if self.has_sums and self._is_suitable(params, step):
            return AdaptiveRun(self, params, step)
        return PlainRun(self.take_plain_step_, params, step)

    def compile_steps(
        self, params: Tensors, step: Tensor, size: int, loss: Tensor
    ) -> CompiledSteps | None:
        """Return compiled steps on minibatches of a size; None if there are none."""
        kernel = _kernel.get(step.device)
        if kernel is None or size > MAX_SAMPLES:
            return None
        key = min(step.shape[0], 2), size
        if key not in self._same_bits:
            self._same_bits[key] = self._keeps_bits(kernel, *key)
        if not self._same_bits[key]:
            return None
        return CompiledSteps(kernel, self, params, step, size, loss)

    def _is_suitable(self, params: Tensors, step: Tensor) -> bool:
        """Return whether the parameters lie in memory as the compiled passes need them."""
        own, rows = [params[one.weight] for one in self.layers], step.shape[0]
        biases = [params[one.bias] for one in self.layers]
        return (
            step.is_cpu
            and step.dtype == torch.float32
            and torch.is_inference_mode_enabled()
            and torch.get_num_threads() == 1
            and all(one.shape[0] == rows and one.dtype == step.dtype for one in own + biases)
            and all(one.is_contiguous() or one.mT.is_contiguous() for one in own)
            and all(one.is_contiguous() for one in biases)
        )

    def _keeps_bits(self, kernel: ModuleType, rows: int, size: int) -> bool:
        """Return whether compiled steps have the bits of tensor operations on a sample."""
        step = torch.linspace(0.05, 0.1, rows)
        x = make_sample(rows, size, self.layers[0].inputs)
        y = torch.arange(rows * size).view(rows, size) % self.layers[-1].outputs
        weight = make_sample(rows, size).square_()
        found = []
        for is_compiled in (False, True):
            params = {o.weight: make_sample(rows, o.inputs, o.outputs) for o in self.layers}
            params |= {one.bias: make_sample(rows, one.outputs) for one in self.layers}
            loss = torch.zeros_like(step)
            steps = CompiledSteps(kernel, self, params, step, size, loss)
            for batch in (Batch(x, y, None), Batch(x, y, weight)):
                if is_compiled:
                    steps.take_(batch)
                else:
                    loss += self.take_plain_step_(params, batch, step)
            steps.add_losses()
            found.append([loss, *params.values()])
        return all(map(torch.equal, *found))


class AdaptiveRun:
    """SGD steps that are compiled once that pays.

    Parameters
    ----------
    chain : Chain
        The layers.
    params : dict of str to Tensor [n, *shape]
        Parameters, changed in place.
    step : Tensor [n]
        Step size.
    """

    def __init__(self, chain: Chain, params: Tensors, step: Tensor) -> None:
        self._chain, self._params, self._step = chain, params, step
        self._plain = PlainRun(chain.take_plain_step_, params, step)
        self._steps: CompiledSteps | None = None

    def take_step_(self, batch: Batch) -> None:
        """Take a step on the minibatch of each row, in place."""
        if self._steps is None or not self._steps.fits(batch):
            self._change_steps(batch)
        if self._steps is not None:
            self._steps.take_(batch)
            return
        began_s = time.thread_time()
        self._plain.take_step_(batch)
        _kernel.count_time(began_s, SHARE)

    def sum_losses(self) -> Tensor:
        """Return the sum [n] of the losses before each step so far."""
        if self._steps is not None:
            self._steps.add_losses()  # to those of the plain steps
        return self._plain.sum_losses()

    def _change_steps(self, batch: Batch) -> None:
        """Compile steps that fit the minibatches, if possible."""
        loss = self.sum_losses()  # losses are added in the order of the steps
        rows, size = batch.x.shape[:2]
        made = None
        if rows == self._step.shape[0]:
            made = self._chain.compile_steps(self._params, self._step, size, loss)
        self._steps = made if made is not None and made.fits(batch) else None


@functools.lru_cache(maxsize=64)
def make_equal_weights(rows: int, size: int) -> Any:
    """Return the weights [n, B] of a mean, the same array in every call. Do not write to it."""
    return torch.full((rows, size), 1.0 / size).numpy()


@functools.lru_cache(maxsize=64)
def keeps_copied_bits(rows: int, size: int, inputs: int, outputs: int) -> bool:
    """Return whether products with transposed weights and their straight copies have equal bits."""
    x, weight = make_sample(rows, size, inputs), make_sample(rows, inputs, outputs)
    return torch.equal(torch.bmm(x, weight), torch.bmm(x, weight.mT.contiguous().mT))


def make_sample(*shape: int) -> Tensor:
    """Return numbers of this shape in (-1, 1)."""
    return torch.arange(math.prod(shape), dtype=torch.float32).mul_(0.7).sin_().view(shape)
