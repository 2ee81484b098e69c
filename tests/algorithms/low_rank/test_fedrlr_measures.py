"""What FedRLR says of itself besides the accuracy of its models, against dense algebra, and how it
gets into a result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import fedrlr as twin
from twins.setting import mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import Tensors
from otafl.factorised.lowrank import LowRank, to_dense

pytestmark = pytest.mark.exact

F64 = torch.float64
S, K, WIDTHS, RANKS = 2, 3, (7, 6, 5, 4), (3, 2, 4)
WEIGHT = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=F64)


def some_blocks(*lead: int, seed: int) -> Tensors:
    """Random points of every layer and biases, with these leading sizes."""
    generator = torch.Generator().manual_seed(seed)
    out: Tensors = {}
    for i, rank in enumerate(RANKS):
        for name, side in (("u", WIDTHS[i]), ("v", WIDTHS[i + 1])):
            x = torch.randn(*lead, side, rank, generator=generator, dtype=F64)
            out[f"{name}{i}"] = torch.linalg.qr(x)[0]
        s = torch.rand(*lead, rank, generator=generator, dtype=F64) + 0.2
        out[f"s{i}"] = s.sort(-1, descending=True).values
        out[f"b{i}"] = torch.randn(*lead, WIDTHS[i + 1], generator=generator, dtype=F64)
    return out


def state() -> tuple[Tensors, Tensors]:
    """Server and devices."""
    return some_blocks(S, seed=5), some_blocks(S, K, seed=4) | {"weight": WEIGHT[..., None]}


def theta(blocks: Tensors, layer: int) -> Tensor:
    """[..., M, N]."""
    u, s, v = (blocks[f"{name}{layer}"] for name in "usv")
    return u * s[..., None, :] @ v.mT


def method(**keys: Any) -> FedRLR:
    return FedRLR(FedRLR.Settings(rank=RANKS, **keys), mlp(WIDTHS), K)


def test_measures_are_the_dense_ones() -> None:
    server, devices = state()
    got = method().compute_metrics(server, devices)
    assert got.keys() == {"product_error", "product_error_law", "consensus_gap"}
    for trial in range(S):
        w = WEIGHT[trial]
        total = error = gap = law = 0.0
        for i, rank in enumerate(RANKS):
            own = theta(devices, i)[trial]
            mean = (w[:, None, None] * own).sum(0)
            total += mean.square().sum()
            error += (theta(server, i)[trial] - mean).square().sum()
            gap += (own - mean).square().sum() / K
            nuclear = torch.linalg.svdvals(own).sum(-1)
            for k in range(K):
                for j in range(K):  # term by term; of one device, what is off F F^T's diagonal
                    both = w[k] * w[j] * nuclear[k] * nuclear[j]
                    sign = -1.0 if k == j else 1.0
                    both += sign * w[k] * w[j] * (own[k] * own[j]).sum()
                    law += both / rank
        expected = {"product_error": error, "product_error_law": law, "consensus_gap": gap}
        for name, value in expected.items():
            assert got[name][trial].item() == pytest.approx(float(value / total), rel=1e-12)


def test_a_gap_at_the_edge_of_rounding_is_seen() -> None:
    """Devices that differ by 1e-6 of their norm: a gap of 1e-12, from sums near 1."""
    server, devices = state()
    for name in "usvb":
        for i in range(3):
            devices[f"{name}{i}"] = (
                devices[f"{name}{i}"][:, :1].expand(S, K, -1, *[-1] * (name in "uv")).clone()
            )
    for i in range(3):
        devices[f"s{i}"][:, 1] *= 1.0 + 1e-6
    gap = method().compute_metrics(server, devices)["consensus_gap"]
    w = WEIGHT[:, 1]
    expected = ((1 - w).square() + 2 * w.square()) / K * 1e-12
    torch.testing.assert_close(gap, expected, rtol=1e-2, atol=0)


def test_the_projected_mean_is_evaluated_where_it_is_asked_for() -> None:
    """eq. (20): the dense mean truncated, with the weighted mean of the biases. Ranks up to K R
    above a side, and full rank."""
    server, devices = state()
    assert set(method().build_views(server, devices)) == {"global", "local"}
    view = method(evaluate_mean=True).build_views(server, devices)["mean"]
    assert view.owner == "trial"
    for i, rank in enumerate(RANKS):
        mean = (WEIGHT[..., None, None] * theta(devices, i)).sum(1)
        got = to_dense(LowRank(*(view.params[f"{name}{i}"] for name in "usv")))
        for trial in range(S):
            expected = twin.nearest(mean[trial].numpy(), rank)
            np.testing.assert_allclose(got[trial], expected, rtol=0, atol=1e-12)
        assert view.params[f"s{i}"].shape == (S, rank)
        bias = (WEIGHT[..., None] * devices[f"b{i}"]).sum(1)
        torch.testing.assert_close(view.params[f"b{i}"], bias, rtol=0, atol=1e-12)


SYMBOLS = {1: 1818, 2: 3636, 4: 7272, 8: 14_544, 16: 27_492, 32: 52_324, 64: 101_988}
ACTUAL = {1: 0.68, 2: 1.35, 4: 2.71, 8: 5.41, 16: 10.23, 32: 19.47, 64: 37.94}


def test_compression_of_the_papers_network() -> None:
    """784-256-256-10: nominal R/128, actual over 268,800 weights; from R = 10 on the last layer's
    factors are as they are at full rank. The middle of two layers is the first."""
    for rank, symbols in SYMBOLS.items():
        found = FedRLR(FedRLR.Settings(rank=rank), mlp((784, 256, 256, 10)), 10).constants
        assert found["compression_actual"] == symbols / 268_800
        assert round(100 * found["compression_actual"], 2) == ACTUAL[rank]
        assert found["compression_nominal"] == rank / 128
    found = FedRLR(FedRLR.Settings(rank=4), mlp((784, 100, 10)), 10).constants
    assert found["compression_nominal"] == 4 * 884 / 78_400
    assert found["compression_actual"] == (4 * 884 + 4 * 110) / 79_400
