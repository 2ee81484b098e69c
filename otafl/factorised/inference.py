"""A trained low-rank layer as plain PyTorch, to deploy: two thin `torch.nn.Linear` in a row.

y = x U diag(s) V^T + b costs R (M + N) multiplications in place of M N (Xue and Lau, FedRLR,
section VI, Fig. 10). Both modules keep parameters of their own, and drawing no start for them
leaves torch's global random state as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from otafl.factorised.lowrank import LowRank


def factored_linear(point: LowRank, bias: Tensor, row: int = 0) -> nn.Sequential:
    """x [..., M] -> x Theta + bias [..., N] for row `row` of a point (u: [n, M, R]) and of the
    biases [n, N], as two linear layers with R (M + N) + N parameters. sqrt(s) goes to each side,
    which keeps both weights at one scale."""
    u, s, v = (part[row] for part in point)
    root = s.sqrt()
    return nn.Sequential(_linear((u * root).T), _linear(v * root, bias[row]))


def factored_mlp(
    points: Sequence[LowRank], biases: Sequence[Tensor], row: int = 0
) -> nn.Sequential:
    """Scores [B, classes] of samples x [B, *input]: a `factored_linear` for each layer of an otafl
    model "mlp" or "softmax_regression", with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for point, bias in zip(points, biases, strict=True):
        layers += [factored_linear(point, bias, row), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """weight [N, M], in memory of its own."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    with torch.inference_mode(False):  # parameters that a user may train further
        layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach().clone())
    return layer
