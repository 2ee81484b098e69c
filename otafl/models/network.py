"""Networks of convolutions, normalisation and residual blocks with variable width and rank.

They serve methods that give devices models of different size. `otafl.models.layers` has their
layers, which run the images of n rows side by side. A channel of the batch normalisation belongs to
one row, so that rows share no statistics. Gradients come from autograd. (One call for each row
takes 0.8 to 3.1 times as long as a grouped call: benchmarks/network.py.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import Tensor, nn

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Count, Draw, Model, ModelSettings, Shapes
from otafl.models.layer_contract import Axis, Channels, Image, Layer, Pass, Unroll
from otafl.models.layer_lists import (
    add_reshaping,
    build_modules,
    count_costs,
    iterate_layers,
    map_layers,
    run_layers,
)
from otafl.models.layers import Conv, Linear, Norm


class Network(Model):
    """Network of layers.

    Parameters of a layer named a are "a.weight" and "a.bias". Those of a low-rank layer are
    "a.left" [k outputs, r] and "a.right" [r, k inputs] instead of its weight (k = 1 for a linear
    layer).
    Weights start uniform in +-sqrt(6 / fan_in) (He et al. 2015), those of the last layer in
    +-1/sqrt(fan_in), factors with the same variance of their product, and biases at 0. Training
    uses the statistics of the minibatch. Tests use those in `params` with the names of `moments`,
    or those of the test batch without them.

    Parameters
    ----------
    image : tuple of int
        Channels, height and width of a sample.
    layers : tuple of Layer
        Layers in their order.
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
        If the image is too small for the layers.
    """

    def __init__(
        self,
        image: Image,
        layers: tuple[Layer, ...],
        unroll: Unroll = "vertical_first",
        scale: float = 1.0,
        dense_prefix: int | None = None,
    ) -> None:
        self.image, self.layers, self.unroll, self.scale = image, layers, unroll, scale
        if dense_prefix is None:
            dense_prefix = int(
                any(isinstance(one, Conv) and one.kernel > 1 for one in iterate_layers(layers))
            )
        self.dense_prefix = dense_prefix
        costs = count_costs(layers, image, unroll)  # first, which refuses too small images
        self.shapes: Shapes = {}
        self.axes: dict[str, tuple[Axis | None, ...]] = {}
        every = list(iterate_layers(layers))
        self._parameters = [one for layer in every for one in layer.list_parameters()]
        for one in self._parameters:
            self.shapes[one.name], self.axes[one.name] = one.shape, one.axes
        norms = [layer for layer in every if isinstance(layer, Norm)]
        self.norms = tuple(f"{layer.name}.{part}" for layer in norms for part in ("weight", "bias"))
        self.batch_norms = any(layer.groups is None for layer in norms)
        self.macs, self.first_macs = costs.macs, costs.first_macs
        self.elementwise, self.saved_activations = costs.elementwise, costs.saved_activations

    def replace_ranks(self, ranks: Mapping[str, int]) -> Network:
        """Return the network with low-rank layers of these names."""

        def change(layer: Layer) -> Layer:
            if isinstance(layer, Conv | Linear) and layer.name in ranks:
                return replace(layer, rank=ranks[layer.name])
            return layer

        return self.replace(layers=map_layers(self.layers, change))

    def build_network(self, channels: Channels) -> Network:
        return self.replace(layers=map_layers(self.layers, lambda layer: layer.narrow(channels)))

    def replace(self, **changes: Any) -> Network:
        """Return the network with other arguments, of the names of the class's."""
        names = ("image", "layers", "unroll", "scale", "dense_prefix")
        other = Network(**{name: getattr(self, name) for name in names} | changes)
        other.loss = self.loss
        return other

    @property
    def factorisable_names(self) -> tuple[str, ...]:
        """The layers that can have low-rank weights, without the classifier and 1x1 shortcuts."""
        return tuple(
            layer.name
            for layer in iterate_layers(self.layers)
            if (isinstance(layer, Conv) and layer.kernel > 1)
            or (isinstance(layer, Linear) and not layer.last)
        )

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        module = build_modules(self.layers, params, self.unroll)
        return add_reshaping(module, self.layers, self.image, input_shape)

    def init(self, draw: Draw) -> Tensors:
        return {
            name: centre + bound * (2.0 * draw(name, shape) - 1.0)
            for name, shape, _, centre, bound in self._parameters
        }

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        return self._run(params, x)

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        """Compute scores in training, on the batch's own statistics and with the scaler.

        Samples of weight 0 (padding) are in no statistics.
        """
        present = None if batch.weight is None else batch.weight > 0
        return self._run(params, batch.x, scale=self.scale, training=True, present=present)

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Tensors:
        """Compute the statistics of each batch normalisation on a batch x [n or 1, B, *input].

        They are "a.mean" and "a.variance" (unbiased) [n, C]; empty for a network without batch
        normalisation.
        """
        found: Tensors = {}
        self._run(params, x, found=found)
        return found

    def lay_out(self, images: Tensor) -> Tensor:
        """Place images channels last in memory on a CPU, in the order height, width, channel.

        This makes small networks up to 1.8 times faster (benchmarks/network.py).
        """
        return images if images.is_cuda else images.contiguous(memory_format=torch.channels_last)

    def _run(self, params: Mapping[str, Any], x: Tensor, **purpose: Any) -> Tensor:
        """Run all layers on samples, in a `Pass` of this purpose."""
        now = Pass(params, self.unroll, **purpose)
        n = now.num_rows
        if x.shape[0] != n:
            x = x.expand(n, *x.shape[1:])
        images = x.reshape(n, x.shape[1], *self.image).transpose(0, 1).flatten(1, 2)
        out = run_layers(self.layers, self.lay_out(images), now)
        return out.unflatten(1, (n, -1)).transpose(0, 1)  # [B, n classes] -> [n, B, classes]


@runtime_checkable
class ResizableModel(Protocol):
    """Model that can be made as a `Network` of any width."""

    def build_network(self, channels: Channels) -> Network:
        """Return the model with channels(c) instead of c channels in every hidden layer."""


class NormedSettings(ModelSettings):
    """Settings of networks of convolutions with normalisation."""

    norm: Literal["batch", "group", "none"] = "batch"
    """normalisation after each convolution: batch, group (Wu and He 2018), or none, with biases in
    the convolutions"""
    groups: int = Field(2, ge=1)
    """groups of channels of a group normalisation, two as in Reddi et al. 2021; the greatest common
    divisor with a layer's channels if they do not divide them"""


class StagesSettings(NormedSettings):
    """Settings of networks of stages."""

    name: str
    blocks: tuple[Count, ...]
    channels: tuple[Count, ...]

    def find_conflicts(self) -> Iterator[str]:
        if len(self.blocks) != len(self.channels):
            yield (
                f"channels: got {len(self.channels)} numbers for {len(self.blocks)} stages of "
                "blocks; give one number for each stage"
            )


def declare_stages(shapes: Mapping[str, Sequence[Any]], place: int, description: str) -> Any:
    """Declare a field with a number for each stage.

    Parameters
    ----------
    shapes : mapping of str to sequence
        Name of a network -> the defaults of its fields.
    place : int
        Place of the field among them.
    description : str
        Description, which lists the stages of each network.
    """
    defaults = "; ".join(f"{list(shape[place])} in {name}" for name, shape in shapes.items())
    return Field(
        default_factory=lambda given: shapes[given["name"]][place],
        min_length=1,
        description=f"{description}; {defaults}",
    )


def make_convolution(
    settings: NormedSettings,
    name: str,
    inputs: int,
    outputs: int,
    stride: int = 1,
    number: str = "",
    kernel: int = 3,
    cut: bool = True,
) -> tuple[Layer, ...]:
    """Make a convolution with its normalisation.

    Parameters
    ----------
    settings : NormedSettings
        Settings of the normalisation.
    name, number : str
        Parts of the names of the layers, "NAMEconvNUMBER" and "NAMEnormNUMBER".
    inputs, outputs : int
        Numbers of channels.
    stride, kernel : int
        Step and side of the window; the padding keeps the size of the image, over the stride.
    cut : bool
        Whether the inputs are hidden channels, of which a narrower network has fewer.

    Returns
    -------
    tuple of Layer
        Convolution, and normalisation if the settings have one.
    """
    bias = settings.norm == "none"
    sizes = inputs, outputs, kernel, stride, (kernel - 1) // 2
    conv = Conv(f"{name}conv{number}", *sizes, has_bias=bias, cut=cut)
    if settings.norm == "none":
        return (conv,)
    groups = settings.groups if settings.norm == "group" else None
    return conv, Norm(f"{name}norm{number}", outputs, groups)
