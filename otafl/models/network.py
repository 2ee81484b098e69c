"""Networks of convolutions, normalisation and residual blocks with variable width and rank.

They serve methods that give devices models of different size. `otafl.models.layer_steps` has their
steps. The images of n rows are side by side, [B, n C, H, W]. A convolution of all rows is one
grouped convolution. A channel of the batch normalisation belongs to one row, so that rows share no
statistics. Gradients come from autograd. (One call for each row takes 0.8 to 3.1 times as long as a
grouped call: benchmarks/network.py.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models import layer_steps as plan
from otafl.models.base import Draw, Model, Shapes
from otafl.models.kernel_matrices import to_kernels
from otafl.models.layer_costs import count_costs

EPSILON = 1e-5
"""Number that normalisation adds to a variance, as in PyTorch."""


class Network(Model):
    """Network of steps.

    Parameters of a step named a are "a.weight" and "a.bias". Those of a low-rank step are "a.left"
    [k outputs, r] and "a.right" [r, k inputs] instead of its weight (k = 1 for a linear step).
    Weights start uniform as in `layer_steps.compute_start_bound`, biases at 0. Training uses the
    statistics of the minibatch. Tests use those in `params` with the names of `moments`, or those
    of the test batch without them.

    Parameters
    ----------
    image : tuple of int
        Channels, height and width of a sample.
    steps : tuple of Step
        Steps in their order.
    unroll : {"vertical_first", "horizontal_first"}
        Order in which a kernel becomes the matrix of low-rank factors.
    scale : float
        Divisor of outputs of convolutions in training (HeteroFL's scaler).
    dense_prefix : int, optional
        Number of the first `factorisable_names` that low-rank methods leave dense; by default one
        of a network of convolutions, and none of another.

    Raises
    ------
    UserError
        If the image is too small for the steps.
    """

    def __init__(
        self,
        image: plan.Image,
        steps: tuple[plan.Step, ...],
        unroll: plan.Unroll = "vertical_first",
        scale: float = 1.0,
        dense_prefix: int | None = None,
    ) -> None:
        self.image, self.steps, self.unroll, self.scale = image, steps, unroll, scale
        if dense_prefix is None:
            dense_prefix = int(
                any(
                    isinstance(one, plan.Conv) and one.kernel > 1
                    for one in plan.iterate_steps(steps)
                )
            )
        self.dense_prefix = dense_prefix
        self.shapes: Shapes = {}
        self.axes: dict[str, tuple[plan.Axis | None, ...]] = {}
        for step in plan.iterate_steps(steps):
            for name, shape, axes in plan.list_parameters(step):
                self.shapes[name], self.axes[name] = shape, axes
        norms = [step for step in plan.iterate_steps(steps) if isinstance(step, plan.Norm)]
        self.norms = tuple(f"{step.name}.{part}" for step in norms for part in ("weight", "bias"))
        self.batch_norms = any(step.groups is None for step in norms)
        costs = count_costs(steps, image, unroll)
        self.macs, self.first_macs, self.saved_activations = (
            costs.macs,
            costs.first_macs,
            costs.saved_activations,
        )
        self.elementwise = costs.elementwise

    def replace_ranks(self, ranks: Mapping[str, int]) -> Network:
        """Return the network with low-rank steps of these names."""
        return self._replace_steps(plan.replace_ranks(self.steps, ranks))

    def build_network(self, channels: plan.Channels) -> Network:
        return self._replace_steps(plan.replace_widths(self.steps, channels))

    def _replace_steps(self, steps: tuple[plan.Step, ...]) -> Network:
        """Return the same network with other steps."""
        return self._copy(Network(self.image, steps, self.unroll, self.scale, self.dense_prefix))

    def rescale(self, scale: float) -> Network:
        """Return the network with another scaler in training."""
        return self._copy(Network(self.image, self.steps, self.unroll, scale, self.dense_prefix))

    def replace_unroll(self, unroll: plan.Unroll) -> Network:
        """Return the network with another order in which kernels become matrices."""
        return self._copy(Network(self.image, self.steps, unroll, self.scale, self.dense_prefix))

    def _copy(self, other: Network) -> Network:
        other.loss = self.loss
        return other

    @property
    def factorisable_names(self) -> tuple[str, ...]:
        """The steps that can have low-rank weights, without the classifier and 1x1 shortcuts."""
        return plan.list_factorisable(self.steps)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "network",
            "image": list(self.image),
            "steps": plan.describe(self.steps),
            "unroll": self.unroll,
        }

    def init(self, draw: Draw) -> Tensors:
        params = {}
        for step in plan.iterate_steps(self.steps):
            for name, shape, _ in plan.list_parameters(step):
                uniform = draw(name, shape)
                if isinstance(step, plan.Norm):
                    params[name] = torch.full_like(uniform, float(name.endswith("weight")))
                elif name.endswith("bias"):
                    params[name] = torch.zeros_like(uniform)
                else:
                    params[name] = (2.0 * uniform - 1.0) * plan.compute_start_bound(step)
        return params

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        return self._run(params, x, _Mode())

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        """Compute scores in training, on the batch's own statistics and with the scaler.

        Samples of weight 0 (padding) are in no statistics.
        """
        present = None if batch.weight is None else batch.weight > 0
        return self._run(params, batch.x, _Mode(training=True, present=present))

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Tensors:
        """Compute the statistics of each batch normalisation on a batch x [n or 1, B, *input].

        They are "a.mean" and "a.variance" (unbiased) [n, C]; empty for a network without batch
        normalisation.
        """
        found: Tensors = {}
        self._run(params, x, _Mode(found=found))
        return found

    def lay_out(self, images: Tensor) -> Tensor:
        """Place images channels last in memory on a CPU, in the order height, width, channel.

        This makes small networks up to 1.8 times faster (benchmarks/network.py).
        """
        return images if images.is_cuda else images.contiguous(memory_format=torch.channels_last)

    def _run(self, params: Mapping[str, Any], x: Tensor, mode: _Mode) -> Tensor:
        """Run all steps on samples."""
        n = next(iter(params.values())).shape[0]
        if x.shape[0] != n:
            x = x.expand(n, *x.shape[1:])
        images = x.reshape(n, x.shape[1], *self.image).transpose(0, 1).flatten(1, 2)
        out = _Flow(self, params, n, mode).run(self.steps, self.lay_out(images))
        return out.unflatten(1, (n, -1)).transpose(0, 1)  # [B, n classes] -> [n, B, classes]


@dataclass(frozen=True)
class _Mode:
    """Purpose of a forward pass.

    present: samples that are not padding, bool [n, B]; None for all. found: destination of the
    statistics of batch normalisations; None for no statistics.
    """

    training: bool = False
    present: Tensor | None = None
    found: Tensors | None = None


@dataclass(frozen=True)
class _Flow:
    """Forward pass of images [B, n C, H, W], and of vectors [B, n M] after a linear layer."""

    network: Network
    params: Mapping[str, Any]
    n: int
    mode: _Mode

    def run(self, steps: Sequence[plan.Step], x: Tensor) -> Tensor:
        """Run steps."""
        for step in steps:
            x = self.step(step, x)
        return x

    def step(self, step: plan.Step, x: Tensor) -> Tensor:
        """Run a step."""
        if isinstance(step, plan.Conv):
            x = self.convolve(step, x)
            scale = self.network.scale
            return x / scale if self.mode.training and scale != 1.0 else x
        if isinstance(step, plan.Linear):
            return self.apply_linear(step, x)
        if isinstance(step, plan.Norm):
            return self.normalise(step, x)
        if isinstance(step, plan.Relu):
            return functional.leaky_relu(x, step.slope) if step.slope else functional.relu(x)
        if isinstance(step, plan.MaxPool):
            return functional.max_pool2d(x, step.size)
        if isinstance(step, plan.MeanPool):
            return x.mean((2, 3))
        return self.run(step.body, x) + self.run(step.shortcut, x)

    def convolve(self, step: plan.Conv, x: Tensor) -> Tensor:
        """Run a convolution, or two for a low-rank one (`otafl.models.kernel_matrices`)."""
        bias = self.params[f"{step.name}.bias"].flatten() if step.bias else None
        s, p = step.stride, step.padding
        if step.rank is None:
            weight = self.params[f"{step.name}.weight"].flatten(0, 1)
            return functional.conv2d(x, weight, bias, s, p, groups=self.n)
        first, second = to_kernels(
            self.params[f"{step.name}.left"],
            self.params[f"{step.name}.right"],
            step.kernel,
            self.network.unroll,
        )
        one, two = ((s, 1), (p, 0)), ((1, s), (0, p))
        if self.network.unroll == "horizontal_first":
            one, two = two, one
        # contiguous: double precision on a processor takes no other kernels
        first, second = first.flatten(0, 1).contiguous(), second.flatten(0, 1).contiguous()
        x = functional.conv2d(x, first, None, *one, groups=self.n)
        return functional.conv2d(x, second, bias, *two, groups=self.n)

    def apply_linear(self, step: plan.Linear, x: Tensor) -> Tensor:
        """Run a linear layer."""
        x = x.flatten(1).unflatten(1, (self.n, -1)).transpose(0, 1)  # [n, B, M]
        bias = self.params[f"{step.name}.bias"][:, None]
        if step.rank is None:
            y = torch.baddbmm(bias, x, self.params[f"{step.name}.weight"])
        else:
            inner = torch.bmm(x, self.params[f"{step.name}.right"].mT)
            y = torch.baddbmm(bias, inner, self.params[f"{step.name}.left"].mT)
        return y.transpose(0, 1).flatten(1)

    def normalise(self, step: plan.Norm, x: Tensor) -> Tensor:
        """Run a normalisation."""
        weight = self.params[f"{step.name}.weight"].flatten()
        bias = self.params[f"{step.name}.bias"].flatten()
        if step.groups is not None:
            groups = self.n * math.gcd(step.groups, step.channels)
            return functional.group_norm(x, groups, weight, bias, EPSILON)
        if self.mode.training:
            return self.normalise_batch(x, weight, bias)
        if self.mode.found is not None:
            over = (0, 2, 3) if x.dim() == 4 else (0,)
            variance, mean = torch.var_mean(x, over)
            self.mode.found[f"{step.name}.mean"] = mean.view(self.n, -1)
            self.mode.found[f"{step.name}.variance"] = variance.view(self.n, -1)
        elif f"{step.name}.mean" in self.params:
            mean = self.params[f"{step.name}.mean"].flatten()
            variance = self.params[f"{step.name}.variance"].flatten()
            return functional.batch_norm(x, mean, variance, weight, bias, eps=EPSILON)
        return functional.batch_norm(x, None, None, weight, bias, training=True, eps=EPSILON)

    def normalise_batch(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Normalise a batch [B, n C, ..] in training."""
        if x.numel() == x.shape[1]:
            raise UserError(
                "training.batch_size: batch normalisation of a single sample with one pixel gives "
                "0 for any sample; use at least 2, or model.norm: group"
            )
        if self.mode.present is not None:
            # samples without padding, centred, scaled so that the whole batch has their variance
            present = self.mode.present.T.to(x.dtype).repeat_interleave(x.shape[1] // self.n, 1)
            count = present.sum(0).clamp_min(1.0)
            unit = (count / len(x)).sqrt()
            own = x if x.dim() == 2 else x.mean((2, 3))
            mean = (own * present).sum(0) / count
            side = (..., *[None] * (x.dim() - 2))
            x = (x - mean[side]) * (present / unit)[side]
            weight = weight * unit
        return functional.batch_norm(x, None, None, weight, bias, training=True, eps=EPSILON)


@runtime_checkable
class ResizableModel(Protocol):
    """Model that can be made as a `Network` of any width."""

    def build_network(self, channels: plan.Channels) -> Network:
        """Return the model with channels(c) instead of c channels in every hidden layer."""
