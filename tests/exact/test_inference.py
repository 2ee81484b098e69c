"""A factored layer as PyTorch modules, against the dense product and otafl's own model.

Mutations that must fail: in `factored_linear`, s for its root on either side, u and v swapped, no
bias, always row 0; in `factored_mlp`, no ReLU, one after the last layer, no flattening; in
`_linear`, a start drawn on the CPU, no clone, parameters that stay in inference mode.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from twins.setting import mlp

from otafl.algorithms.config import FedRLRConfig
from otafl.algorithms.fedrlr import FedRLR
from otafl.core.rng import Streams
from otafl.factorised.inference import factored_linear, factored_mlp
from otafl.factorised.lowrank import LowRank, dense


def layer(dtype: torch.dtype = torch.float64, rows: int = 3) -> tuple[LowRank, Tensor]:
    """Rows of 6 x 5 matrices of rank 2, and biases."""
    generator = torch.Generator().manual_seed(4)
    u, v = (torch.randn(rows, side, 2, generator=generator, dtype=dtype) for side in (6, 5))
    s = torch.tensor([[9.0, 0.25]], dtype=dtype).expand(rows, 2)
    return LowRank(u, s, v), torch.randn(rows, 5, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [0, 2])
def test_it_is_the_dense_layer(row: int, dtype: torch.dtype) -> None:
    point, bias = layer(dtype)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(5), dtype=dtype)
    out = factored_linear(point, bias, row)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, x @ dense(point)[row] + bias[row])


def test_by_hand() -> None:
    """2 e_1 e_2^T and bias (10, 20): x = (3, 4) gives (10, 26)."""
    u, v = torch.tensor([[[1.0], [0.0]]]), torch.tensor([[[0.0], [1.0]]])
    module = factored_linear(LowRank(u, torch.tensor([[2.0]]), v), torch.tensor([[10.0, 20.0]]))
    torch.testing.assert_close(module(torch.tensor([3.0, 4.0])), torch.tensor([10.0, 26.0]))


def test_parameters() -> None:
    """R (M + N) + N of them, contiguous, trainable, and both weights at one scale."""
    point, bias = layer()
    module = factored_linear(point, bias)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes == {"0.weight": (2, 6), "1.weight": (5, 2), "1.bias": (5,)}
    assert sum(p.numel() for p in module.parameters()) == 2 * (6 + 5) + 5
    assert all(p.is_contiguous() and p.requires_grad for p in module.parameters())
    u, _, v = (part[0] for part in point)
    torch.testing.assert_close(module[0].weight.norm(dim=1), u.norm(dim=0) * point.s[0].sqrt())
    torch.testing.assert_close(module[1].weight.norm(dim=0), v.norm(dim=0) * point.s[0].sqrt())


def test_it_owns_its_parameters_and_draws_nothing() -> None:
    point, bias = layer()
    before = torch.get_rng_state()
    module = factored_linear(point, bias)
    assert torch.equal(torch.get_rng_state(), before)
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    for tensor in (point.u, point.v, bias):
        tensor.zero_()
    for name, value in module.state_dict().items():
        assert torch.equal(value, kept[name])


@pytest.mark.parametrize("view", ["global", "local"])
def test_it_scores_as_fedrlr_does(view: str) -> None:
    """Made in inference mode, as the engine's blocks are, it can be trained further."""
    model = mlp((6, 5, 4, 3))
    algorithm = FedRLR(FedRLRConfig(rank=2), model, devices=2)
    with torch.inference_mode():
        server, devices = algorithm.init(Streams([0], [0], dtype=torch.float64), {})
        devices = {name: b.expand(-1, 2, *b.shape[2:]) * 1.5 for name, b in devices.items()}
        server = {name: b + 0.1 if name[0] == "b" else b for name, b in server.items()}
        seen = algorithm.views(server, devices)[view]
        blocks, row = seen.params, len(seen.params["u0"]) - 1
        points = [LowRank(blocks[f"u{i}"], blocks[f"s{i}"], blocks[f"v{i}"]) for i in range(3)]
        module = factored_mlp(points, [blocks[f"b{i}"] for i in range(3)], row)
    x = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    scores = module(x)
    torch.testing.assert_close(scores, seen.predict(blocks, x.flatten(1)[None])[row])
    assert [type(m) for m in module] == [nn.Flatten, *[nn.Sequential, nn.ReLU] * 2, nn.Sequential]
    scores.sum().backward()
    assert all(p.grad is not None for p in module.parameters())
