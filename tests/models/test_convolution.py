"""Convolutions: against a NumPy loop, and a fold that transposes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.cnn_bench import CLOSE, F64, OF_CASES, make_cnn

from otafl.models import Window, convolution

pytestmark = pytest.mark.exact


def looped(
    image: NDArray[np.float64], weight: NDArray[np.float64], window: Window
) -> NDArray[np.float64]:
    """A convolution pixel by pixel, pooled: image [C, H, W], weight [k k C, out] -> [H', W',
    out]."""
    k, pad, size = window.kernel, window.padding, window.pool
    channels, height, width = image.shape
    high = (height + 2 * pad - k) // window.stride + 1
    wide = (width + 2 * pad - k) // window.stride + 1
    z = np.zeros((high, wide, weight.shape[1]))
    for i in range(high):
        for j in range(wide):
            number = 0
            for di in range(k):
                for dj in range(k):
                    for c in range(channels):
                        row, column = i * window.stride + di - pad, j * window.stride + dj - pad
                        if 0 <= row < height and 0 <= column < width:
                            z[i, j] += image[c, row, column] * weight[number]
                        number += 1
    blocks = z[: high // size * size, : wide // size * size]
    return blocks.reshape(high // size, size, wide // size, size, -1).max((1, 3))


@pytest.mark.parametrize(
    "window",
    [
        Window(2, 5, 6, 3, padding=1, pool=2),
        Window(1, 7, 5, 2, stride=2),
        Window(3, 6, 4, 4, pool=1),
    ],
)
def test_a_convolution_is_the_loop(window: Window) -> None:
    """Dense and in patches, rows and samples apart."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, window.channels, window.height, window.width, generator=generator)
    x = x.double()
    weight = torch.randn(2, window.inputs, 4, generator=generator, dtype=F64)
    z = convolution.convolve(
        convolution.to_grouped_images(x, window), weight, weight[:, 0] * 0, window
    )
    grouped = convolution.to_grouped_features(convolution.pool(z, window.pool)[0], 2)
    met = convolution.extract_patches(convolution.to_images(x, window), 2, window)
    z = convolution.to_score_images(met @ weight, window)
    patched = convolution.to_features(convolution.pool(z, window.pool)[0], 2)
    for row in range(2):
        for sample in range(3):
            expected = looped(x[row, sample].numpy(), weight[row].numpy(), window)
            assert expected.shape[:2] == window.pooled
            for got in (grouped, patched):
                np.testing.assert_allclose(got[row, sample], expected.ravel(), **CLOSE)


@OF_CASES
def test_fold_is_the_transpose_of_patches(case: str) -> None:
    """<patches(x), p> = <x, fold(p)>."""
    generator = torch.Generator().manual_seed(4)
    for layer in make_cnn(case).layers:
        if (window := layer.window) is None:
            continue
        shape = (2 * 3, window.channels, window.height, window.width)
        x = torch.randn(*shape, generator=generator, dtype=F64)
        made = convolution.extract_patches(x, 2, window)
        p = torch.randn(made.shape, generator=generator, dtype=F64)
        there, back = (made * p).sum(), (x * convolution.fold_patches(p, window)).sum()
        torch.testing.assert_close(there, back, rtol=1e-12, atol=0)
