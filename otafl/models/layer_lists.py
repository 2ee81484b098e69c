"""Lists of layers: residual blocks, forward pass, costs, `torch.nn.Module`, and names."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from otafl.core.errors import UserError
from otafl.models.layer_contract import Costs, Image, Layer, Part, Pass, Sum, Unroll, make_sequence
from otafl.models.layers import Conv, Linear


@dataclass(frozen=True)
class Residual(Layer):
    """Residual block, body(x) + shortcut(x); an empty shortcut is x itself."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return run_layers(self.body, x, now) + run_layers(self.shortcut, x, now)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        sides = [count_costs(side, image, unroll) for side in (self.body, self.shortcut)]
        return Costs(
            sides[0].image,
            tuple(one for side in sides for one in side.products),
            sum(side.first_macs for side in sides),
            sum(side.elementwise for side in sides) + math.prod(sides[0].image),
            sum(side.saved_activations for side in sides),
        )

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return Sum(*(build_modules(side, params, unroll) for side in (self.body, self.shortcut)))


def iterate_layers(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Yield all layers, those of residual blocks in their position, body first."""
    for layer in layers:
        if isinstance(layer, Residual):
            yield from iterate_layers((*layer.body, *layer.shortcut))
        else:
            yield layer


def run_layers(layers: Sequence[Layer], x: Tensor, now: Pass) -> Tensor:
    """Run layers on images [B, n C, H, W] or vectors [B, n M]."""
    for layer in layers:
        x = layer.run(x, now)
    return x


def count_costs(
    layers: Sequence[Layer], image: Image, unroll: Unroll = "vertical_first", first: bool = True
) -> Costs:
    """Count the costs of one sample.

    Parameters
    ----------
    layers : sequence of Layer
        Layers in their order.
    image : tuple of int
        Channels, height and width of the input.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows of a low-rank convolution.
    first : bool
        Whether the input is the sample itself.

    Returns
    -------
    Costs
        The costs.

    Raises
    ------
    UserError
        If the image is too small for the layers.
    """
    products: tuple[int, ...] = ()
    first_macs = elementwise = saved = 0
    for layer in layers:
        own, (_, h, w) = layer.count(image, unroll), image
        image = own.image
        if min(image) < 1:
            kind = "max-pooling"
            if isinstance(layer, Conv):
                kind = f"convolution with windows of {layer.kernel}x{layer.kernel} pixels"
            raise UserError(
                f"model.name: images of {h}x{w} pixels are too small for a {kind}; use larger "
                "images, or fewer convolutions or poolings"
            )
        products += own.products
        if first:
            first_macs += own.first_macs if isinstance(layer, Residual) else sum(own.products[:1])
        has_weights = isinstance(layer, Residual) or any(layer.list_parameters())
        first = first and not has_weights
        elementwise += own.elementwise
        saved += own.saved_activations + math.prod(image)
    return Costs(image, products, first_macs, elementwise, saved)


def build_modules(
    layers: Sequence[Layer],
    params: Mapping[str, Tensor],
    unroll: Unroll = "vertical_first",
    parts: Mapping[str, Sequence[Part]] | None = None,
) -> nn.Sequential:
    """Build the module of layers.

    Parameters
    ----------
    layers : sequence of Layer
        Layers in their order.
    params : mapping of str to Tensor [*shape]
        Parameters of one row.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows of a low-rank convolution.
    parts : mapping of str to sequence of Part, optional
        What acts in place of the weights of the layers of these names.

    Returns
    -------
    torch.nn.Sequential
        The module of samples [batch, channels, height, width], or of vectors if the first layer is
        linear.
    """
    named: OrderedDict[str, nn.Module] = OrderedDict()
    flat = isinstance(layers[0], Linear) if layers else False
    for place, layer in enumerate(layers):
        name = getattr(layer, "name", f"{type(layer).__name__.lower()}{place}").replace(".", "_")
        if isinstance(layer, Linear) and not flat:
            named["features"], flat = nn.Flatten(), True
        if parts is not None and name in parts:
            named[name] = make_sequence(parts[name], params[f"{name}.bias"])
        else:
            named[name] = layer.build_module(params, unroll, flat)
    return nn.Sequential(named)


def add_reshaping(
    module: nn.Sequential, layers: Sequence[Layer], image: Image, input_shape: tuple[int, ...]
) -> nn.Sequential:
    """Return the module of layers for samples of a shape: images, or vectors, or grey pixels."""
    front: OrderedDict[str, nn.Module] = OrderedDict()
    is_flat = isinstance(layers[0], Linear)
    if len(input_shape) > 1 and (input_shape != image or is_flat):
        front["flatten"] = nn.Flatten()
    if input_shape != image and not is_flat:
        front["image"] = nn.Unflatten(1, image)
    return nn.Sequential(front | OrderedDict(module.named_children()))


def map_layers(layers: Sequence[Layer], change: Callable[[Layer], Layer]) -> tuple[Layer, ...]:
    """Return the layers after a change of each, including those of residual blocks."""
    return tuple(
        Residual(map_layers(layer.body, change), map_layers(layer.shortcut, change))
        if isinstance(layer, Residual)
        else change(layer)
        for layer in layers
    )


def name_layers(chain: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers of a chain with the names "layer0", "layer1", ... of those with weights.

    So they are layers of a `Network`. A convolution's weight then is by output, input, height,
    width, and the last images are read in the order channel, height, width.
    """
    return tuple(
        replace(layer, name=f"layer{layer.name}", numbered=False)
        if isinstance(layer, Conv | Linear)
        else layer
        for layer in chain
    )
