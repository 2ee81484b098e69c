"""Local SGD of fully connected layers in one compiled pass, from received parameters to increments.

Rows are trained one after the other, so that their parameters stay in the cache. Single steps of
all rows (`otafl.models.compiled_steps`) carry parameters and samples through memory each time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import cast

import numpy as np

from otafl.core.compiled_module import CompiledModule, import_loops
from otafl.core.contracts import Batch, ListedData, LocalData, StepSamples
from otafl.core.lazy import Tensor, torch
from otafl.models.compiled_steps import (
    MAX_SAMPLES,
    MIN_COPIED,
    Chain,
    keeps_copied_bits,
    make_equal_weights,
    make_sample,
)

_kernel = CompiledModule("otafl.models.training_kernel")

SHARE = 0.2
"""Share of the time of single steps that the pass saves, about; for small layers half of it."""

ALIGNED = 16
"""Numbers in a line of the cache, at whose start each tensor of a row begins."""

Increments = tuple[Tensor, Tensor]
"""Increments [n, P], and the mean loss [n] before the steps."""


class CompiledTraining:
    """Local SGD of a chain of layers on the cross-entropy of classes, if its bits are torch's.

    Before the first use for a size of minibatches it computes a sample. If a bit differs from that
    of tensor operations on this processor, or torch's library has no functions for it
    (`otafl.core.torch_math`), it is not used any more.

    Parameters
    ----------
    chain : Chain
        The layers.
    shapes : dict of str to tuple of int
        Shapes of the parameters, in the order of the flat ones.
    turned : frozenset of str
        Weights that are trained transposed.
    train_plainly : callable
        Function of received parameters [n, P], step size [n] and minibatches that returns the same
        by tensor operations.
    """

    def __init__(
        self,
        chain: Chain,
        shapes: dict[str, tuple[int, ...]],
        turned: frozenset[str],
        train_plainly: Callable[[Tensor, Tensor, list[Batch]], Increments],
    ) -> None:
        self._chain, self._turned, self._train_plainly = chain, turned, train_plainly
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        self._size = sum(sizes)
        self._start = dict(zip(shapes, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self._same_bits: dict[tuple[int, int], bool] = {}
        self._is_refused = not chain.has_sums
        self._tables: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}

    def is_suitable(self, received: Tensor, step: Tensor, work: LocalData) -> bool:
        """Return whether the pass can serve these parameters [n, P], step size [n] and data.

        They must be in single precision on one thread of a CPU, rows in adjacent memory. Local data
        must list their steps, by its own class: a wrapper can change minibatches.
        """
        return (
            not self._is_refused
            and hasattr(type(work), "lists_steps")
            and cast(ListedData, work).lists_steps
            and step.is_cpu
            and step.dtype == received.dtype == torch.float32
            and torch.is_inference_mode_enabled()
            and torch.get_num_threads() == 1
            and received.stride(1) == 1
            and received.stride(0) in (0, self._size)
        )

    def count_time(self, began_s: float) -> None:
        """Count this thread's time since `began_s` for single steps in place of the pass."""
        _kernel.count_time(began_s, SHARE)

    def train(
        self, received: Tensor, step: Tensor, work: LocalData, out: Tensor | None = None
    ) -> Increments | None:
        """Take all local steps, for what is suitable. Return None if the pass cannot.

        Parameters
        ----------
        received : Tensor [n, P]
            Received parameters.
        step : Tensor [n]
            Step size.
        work : LocalData
            Local data of the rows.
        out : Tensor [n, P], optional
            Memory for the increments; new memory if not given.
        """
        kernel = _kernel.get(step.device)
        if kernel is None:
            return None
        samples = cast(ListedData, work).draw_all_steps()
        key = min(step.shape[0], 2), samples.index.shape[2]
        if key not in self._same_bits:
            self._same_bits[key] = self._fits(samples) and self._keeps_bits(kernel, *key)
            self._is_refused = not self._same_bits[key]
        if not self._same_bits[key]:
            return None
        return self._train(kernel, received, step, samples, out)

    def _fits(self, samples: StepSamples) -> bool:
        """Return whether the samples are vectors in single precision with classes."""
        x, y = samples.x, samples.y
        inputs = self._chain.layers[0].inputs
        is_vector = x.dtype == torch.float32 and x.dim() == 2 and x.shape[1] == inputs
        has_classes = y.dtype == torch.int64 and y.dim() == 1
        return is_vector and has_classes and samples.index.shape[2] <= MAX_SAMPLES

    def _train(
        self,
        kernel: ModuleType,
        received: Tensor,
        step: Tensor,
        samples: StepSamples,
        out: Tensor | None = None,
    ) -> Increments:
        """Take the steps by the compiled pass."""
        num_steps, rows, size = samples.index.shape
        is_mean = samples.weight is None
        weight = make_equal_weights(rows, size)
        if samples.weight is not None:
            weight = samples.weight.contiguous().numpy()
        if size not in self._tables:
            self._tables[size] = self._make_tables(size)
        layers, places, length = self._tables[size]
        memory = step.new_empty(length)
        out = step.new_empty(rows, self._size) if out is None else out
        written = step.new_empty(2, num_steps, rows, size)
        totals, picked = written.numpy()
        kernel.train_rows(
            (received if received.stride(0) else received[:1]).numpy(),
            samples.x.numpy(),
            samples.y.numpy(),
            samples.index.contiguous().numpy(),
            weight,
            step.contiguous().numpy(),
            np.float32(self._chain.slope),
            layers,
            places,
            memory.numpy(),
            out.numpy(),
            totals,
            picked,
        )
        loss = torch.zeros_like(step)
        written[0].log_()
        shares = totals  # not read for a mean
        if not is_mean:
            shares = np.ascontiguousarray(np.broadcast_to(weight, totals.shape))
        add_losses = import_loops("otafl.models.step_kernel").add_losses
        add_losses(totals, picked, shares, is_mean, loss.numpy())
        return out, loss / num_steps

    def _make_tables(self, size: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the tables of the layers and of their places in memory, and its length."""
        layers, places, end = [], [], 0
        own = self._chain.layers
        for one in own:
            weight, by_sample = one.inputs * one.outputs, size * one.outputs
            turned = one.weight in self._turned
            copied = turned and size >= MIN_COPIED
            copied = copied and keeps_copied_bits(1, size, one.inputs, one.outputs)
            start = self._start[one.weight], self._start[one.bias]
            layers.append([one.inputs, one.outputs, *start, turned, copied])
            place = []
            for length in (weight, weight * copied, one.outputs, by_sample):
                place.append(end)
                end += _align(length)
            g = place[-1]  # the gradient of the last layer takes the place of its outputs
            if one is not own[-1]:
                g, end = end, end + _align(by_sample)
            scaled = g  # below the first layer is no gradient
            if one is not own[0]:
                scaled, end = end, end + _align(by_sample)
            places.append([*place, g, scaled])
        return np.array(layers), np.array(places), end + size * own[0].inputs

    def _keeps_bits(self, kernel: ModuleType, rows: int, size: int) -> bool:
        """Return whether the pass has the bits of tensor operations on a sample."""
        if not kernel.is_available:
            return False
        step, inputs = torch.linspace(0.05, 0.1, rows), self._chain.layers[0].inputs
        index = torch.arange(2 * rows * size).view(2, rows, size)
        x, y = make_sample(index.numel(), inputs), index.flatten() % self._chain.layers[-1].outputs
        weight = make_sample(rows, size).square_()
        received = make_sample(rows, self._size)
        for own in (None, weight):
            batches = [Batch(x[one], y[one], own) for one in index]
            expected = self._train_plainly(received, step, batches)
            got = self._train(kernel, received, step, StepSamples(x, y, index, own))
            if not all(map(torch.equal, got, expected)):
                return False
        return True


def _align(length: int) -> int:
    """Return a length that is a multiple of a line of the cache."""
    return -(-length // ALIGNED) * ALIGNED
