"""Blocks of a pre-norm transformer for rows with own or shared parameters.

Hidden states are [n or 1, B T, width] for T positions of B samples. Each step broadcasts over rows,
so that states stay [1, B T, width] until a parameter of a row enters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from otafl.models.linear_layer import add_bias, apply

EPSILON = 1e-5
"""Number that layer normalisation adds to a variance, as in PyTorch."""


def list_block_params(
    block: str, width: int, inner: int
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yield name, shape and whether it is a linear weight, of each parameter of a block.

    Parameters
    ----------
    block : str
        Name of the block.
    width, inner : int
        Width of the states, and of the layer between "up" and "down".
    """
    sides = {"up": (width, inner), "down": (inner, width)}
    for norm, layers in (("norm1", "query key value output"), ("norm2", "up down")):
        yield f"{block}.{norm}", (width,), False
        yield f"{block}.{norm}_bias", (width,), False
        for layer in layers.split():
            side = sides.get(layer, (width, width))
            yield f"{block}.{layer}", side, True
            yield f"{block}.{layer}_bias", side[1:], False


def run_block(
    params: Mapping[str, Any],
    block: str,
    x: Tensor,
    positions: int,
    heads: int,
    causal: bool,
    drop: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    r"""Run a block.

    Parameters
    ----------
    params : mapping of str to Tensor [n or 1, *shape], or LinearMap
        Parameters.
    block : str
        Name of the block.
    x : Tensor [n or 1, B T, width]
        States.
    positions : int
        Number of positions T of a sample.
    heads : int
        Number of attention heads.
    causal : bool
        Whether a position attends only to itself and those before it.
    drop : callable
        Dropout of the outputs of attention and perceptron; none by default.

    Returns
    -------
    Tensor [n or 1, B T, width]
        New states.

    Notes
    -----
    With layer normalisations N, attention A and dropout D it is

    .. math::

        x \leftarrow x + D(A(N_1(x))), \quad
        x \leftarrow x + D(\mathrm{GELU}(N_2(x) W_{up} + b) W_{down} + b')
    """
    z = normalise(params, f"{block}.norm1", x)
    q, k, v = (apply_linear(params, f"{block}.{name}", z) for name in ("query", "key", "value"))
    mixed = attend(q, k, v, positions, heads, causal)
    x = x + drop(apply_linear(params, f"{block}.output", mixed))
    z = normalise(params, f"{block}.norm2", x)
    inner = functional.gelu(apply_linear(params, f"{block}.up", z))
    return x + drop(apply_linear(params, f"{block}.down", inner))


def apply_linear(params: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    """Compute x W + b of the layer with the parameters `name` and `name_bias`."""
    return add_bias(apply(params[name], x), params[f"{name}_bias"])


def normalise(params: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    """Normalise states [n or 1, M, width], with the scale `name` and the shift `name_bias`."""
    scale, shift = params[name], params[f"{name}_bias"]
    if len(scale) == len(shift) == 1:
        return functional.layer_norm(x, x.shape[-1:], scale[0], shift[0], EPSILON)
    unit = functional.layer_norm(x, x.shape[-1:], eps=EPSILON)
    return torch.addcmul(shift[:, None], unit, scale[:, None])


def attend(q: Tensor, k: Tensor, v: Tensor, positions: int, heads: int, causal: bool) -> Tensor:
    r"""Compute the attention of several heads.

    Parameters
    ----------
    q, k, v : Tensor [n or 1, B T, width]
        Queries, keys and values.
    positions : int
        Number of positions T of a sample.
    heads : int
        Number of heads, which share the width.
    causal : bool
        Whether a position attends only to itself and those before it.

    Returns
    -------
    Tensor [n or 1, B T, width]
        The values' mixtures.

    Notes
    -----
    In each head of width d,

    .. math:: \mathrm{softmax}(q k^T / \sqrt{d}) v
    """
    rows, total = max(len(q), len(k), len(v)), q.shape[1]
    q, k, v = (
        one.expand(rows, -1, -1)
        .reshape(-1, positions, heads, one.shape[2] // heads)
        .transpose(1, 2)
        for one in (q, k, v)
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed.transpose(1, 2).reshape(rows, total, -1)
