"""Modules of a trained chain of layers, whose weights are dense, low-rank or in CP form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from otafl.models.geometry import Window
from otafl.models.linear_layer import Layer
from otafl.models.torch_layers import (
    NamedModules,
    make_activation,
    make_conv,
    make_image_layers,
    make_linear,
)

Params = Mapping[str, Tensor]


def build_chain(
    layers: Sequence[Layer], form: str, slope: float, params: Params, shape: tuple[int, ...]
) -> NamedModules:
    """Yield the modules of a chain of layers, with images channels first as in PyTorch."""
    front = [layer.window for layer in layers if layer.window is not None]
    if front:
        first = front[0]
        yield from make_image_layers(shape, (first.channels, first.height, first.width))
    elif len(shape) != 1:
        yield "flatten", nn.Flatten()
    for i, layer in enumerate(layers):
        thin, bias = _get_weights(form, i, layer, params)
        if layer.window is not None:
            yield f"conv{i}", _build_windowed_conv(thin, bias, layer.window, form)
            if layer.window.pool > 1:
                yield f"pool{i}", nn.MaxPool2d(layer.window.pool)
        else:
            if i and i == len(front):
                yield "features", nn.Flatten()
                thin[0] = _to_channels_first(thin[0], front[-1])
            yield (
                f"linear{i}",
                _append_module(
                    [make_linear(one) for one in thin[:-1]], make_linear(thin[-1], bias)
                ),
            )
        if i < len(layers) - 1:
            yield f"activation{i}", make_activation(slope)


def _get_weights(form: str, i: int, layer: Layer, params: Params) -> tuple[list[Tensor], Tensor]:
    """Return the matrices of a layer's weight, and its bias.

    Parameters
    ----------
    form : str
        Representation of the weights.
    i : int
        Index of the layer.
    layer : Layer
        Layer.
    params : mapping of str to Tensor
        Parameters.

    Returns
    -------
    list of Tensor [outputs, inputs]
        Matrices that act one after the other; of a convolution in CP form the factors [R, I_n].
    Tensor [outputs]
        Bias.
    """
    if form == "dense":
        return [params[layer.weight].mT], params[layer.bias]
    if form == "cp":
        modes = 2 if layer.window is None else 4
        factors = [params[f"{layer.weight}.A{n}"] for n in range(1, modes + 1)]
        return factors if modes == 4 else [factors[0], factors[1].mT], params[layer.bias]
    u, s, v = (params[f"{name}{i}"] for name in "usv")
    if form == "low_rank_with_bias":
        u, bias = u[:-1], (u[-1] * s) @ v.mT
    else:
        bias = params[f"b{i}"]
    root = s.sqrt()  # to each side, which keeps both at one scale
    return [(u * root).mT, v * root], bias


def _build_windowed_conv(
    thin: Sequence[Tensor], bias: Tensor, window: Window, form: str
) -> nn.Module:
    """Build a convolution whose first matrix has columns in the order height, width, channel.

    Further matrices act on channels.
    """
    k, s, p = window.kernel, window.stride, window.padding
    if form == "cp":
        high, wide, channels, outputs = thin
        rank = len(high)
        return nn.Sequential(
            make_conv(channels[:, :, None, None], None, (1, 1), (0, 0)),
            make_conv(wide[:, None, None, :], None, (1, s), (0, p), rank),
            make_conv(high[:, None, :, None], None, (s, 1), (p, 0), rank),
            make_conv(outputs.mT[:, :, None, None], bias, (1, 1), (0, 0)),
        )
    first = thin[0].unflatten(1, (k, k, window.channels)).permute(0, 3, 1, 2)
    if len(thin) == 1:
        return make_conv(first, bias, (s, s), (p, p))
    second = make_conv(thin[1][:, :, None, None], bias, (1, 1), (0, 0))
    return nn.Sequential(make_conv(first, None, (s, s), (p, p)), second)


def _to_channels_first(weight: Tensor, window: Window) -> Tensor:
    """Reorder a weight [N, H W C] on the last images to [N, C H W]."""
    high, wide = window.pooled
    return weight.unflatten(1, (high, wide, -1)).permute(0, 3, 1, 2).flatten(1)


def _append_module(modules: list[nn.Linear], last: nn.Linear) -> nn.Module:
    """Append a layer, in a sequence if there are others."""
    return nn.Sequential(*modules, last) if modules else last
