"""Convolutions of n rows with their own kernels, forward and backward.

They are one grouped convolution on the rows' images side by side, [B, n C, H, W]. On a CPU core (10
rows of 6 images) this is 2 to 3 times faster than dense products with patches of images. Images
have their channels last in memory, where pooling is fastest.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from otafl.models.layer_contract import Image
from otafl.models.layers import Conv


class ConvolutionCache(NamedTuple):
    """Values of the forward pass of a convolution that its backward pass needs.

    Parameters
    ----------
    image : Tensor
        Input image.
    weight : Tensor [n, k k C, out]
        Weight.
    z : Tensor
        Output before pooling.
    winners : Tensor, int64, or None
        Position in z of each pooled number; None without pooling.
    """

    image: Tensor
    weight: Tensor
    z: Tensor
    winners: Tensor | None


def to_grouped_images(x: Tensor, image: Image) -> Tensor:
    """Reshape samples [n, B, *input] to images [B, n C, H, W]."""
    x = x.view(*x.shape[:2], *image).transpose(0, 1).flatten(1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def to_grouped_features(image: Tensor, n: int) -> Tensor:
    """Reshape images [B, n C, H, W] to vectors [n, B, H W C]."""
    return image.unflatten(1, (n, -1)).permute(1, 0, 3, 4, 2).flatten(2)


def to_grouped_gradient_images(g: Tensor, sides: tuple[int, int]) -> Tensor:
    """Reshape gradients [n, B, H W C] of `to_grouped_features` to images of sides H, W."""
    g = g.view(*g.shape[:2], *sides, -1).permute(1, 2, 3, 0, 4)
    return g.flatten(3).permute(0, 3, 1, 2)


def pool(z: Tensor, size: int) -> tuple[Tensor, Tensor | None]:
    """Return the maximum of each size x size window of images [..., H, W], and its position."""
    if size == 1:
        return z, None
    pooled, winners = functional.max_pool2d(z, size, return_indices=True)
    return pooled, winners


def unpool(g: Tensor, cache: ConvolutionCache, size: int) -> Tensor:
    """Compute the gradient before pooling.

    Parameters
    ----------
    g : Tensor [..., H', W']
        Gradient by the pooled images.
    cache : ConvolutionCache
        Values of the forward pass.
    size : int
        Side of the windows.

    Returns
    -------
    Tensor [..., H, W]
        Gradient at the largest number of each window (the first of equal ones), and 0 elsewhere.
    """
    if cache.winners is None:
        return g
    s = [size, size]
    return torch.ops.aten.max_pool2d_with_indices_backward(
        g, cache.z, s, s, [0, 0], [1, 1], False, cache.winners
    )


def to_kernels(weight: Tensor, layer: Conv) -> Tensor:
    """Reshape matrices [n, k k C, out] to the kernels [n out, C, k, k] of a grouped convolution."""
    k = layer.kernel
    out = weight.unflatten(1, (k, k, -1)).permute(0, 4, 1, 2, 3).contiguous()
    return out.flatten(0, 1).permute(0, 3, 1, 2)


def convolve(image: Tensor, weight: Tensor, bias: Tensor, layer: Conv) -> Tensor:
    """Convolve the images of n rows with their own weights.

    Parameters
    ----------
    image : Tensor [B, n C, H, W], or [B, C, H, W]
        Images of each row, or of all rows.
    weight : Tensor [n, k k C, out]
        Weights.
    bias : Tensor [n, out]
        Biases.
    layer : Conv
        Sizes of the window.

    Returns
    -------
    Tensor [B, n out, H', W']
        Output.
    """
    groups = image.shape[1] // layer.channels
    z = functional.conv2d(
        image, to_kernels(weight, layer), bias.flatten(), layer.stride, layer.padding, 1, groups
    )
    return z.contiguous(memory_format=torch.channels_last)


def convolve_backward(
    g: Tensor, image: Tensor, weight: Tensor, layer: Conv, by_image: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Compute the gradients of `convolve`.

    Parameters
    ----------
    g : Tensor [B, n out, H', W']
        Gradient by the output.
    image : Tensor [B, n C, H, W]
        Input.
    weight : Tensor [n, k k C, out]
        Weights.
    layer : Conv
        Sizes of the window.
    by_image : bool
        Whether to compute the gradient by the image.

    Returns
    -------
    Tensor [B, n C, H, W], or None
        Gradient by the image.
    Tensor [n, k k C, out]
        Gradient by the weight.
    Tensor [n, out]
        Gradient by the bias.
    """
    n, k, out = weight.shape[0], layer.kernel, weight.shape[2]
    by_x, by_kernel, by_bias = torch.ops.aten.convolution_backward(
        g,
        image,
        to_kernels(weight, layer),
        [n * out],
        [layer.stride] * 2,
        [layer.padding] * 2,
        [1, 1],
        False,
        [0, 0],
        n,
        [by_image, True, True],
    )
    by_weight = by_kernel.view(n, out, -1, k, k).permute(0, 3, 4, 2, 1).reshape(weight.shape)
    return by_x, by_weight, by_bias.view(n, out)
