"""What FedHM's analysis rests on: gradients by factors (10), and padding ranks with zeros (12)."""

from __future__ import annotations

import pytest
import torch
from support.fedhm_bench import HYPER, make_hyper, make_perceptron
from torch import Tensor
from twins.setting import everyone, local_data

from otafl.algorithms.submodel_training import compute_gradients, train_
from otafl.algorithms.submodels.fedhm import FedHm
from otafl.algorithms.submodels.fedhm_layers import make_frobenius_penalty
from otafl.core.contracts import Batch, Tensors
from otafl.core.rng import Streams
from otafl.models.network import Network

pytestmark = pytest.mark.exact

DOUBLE = torch.float64
WIDTHS = (6, 5, 7, 3)
LAYERS = ("linear1", "linear2")


def drawn(network: Network, rows: int, seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(rows, *shape, dtype=DOUBLE, generator=generator)

    return network.init(draw)


def batch(rows: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 8, WIDTHS[0], dtype=DOUBLE, generator=generator)
    return Batch(x, torch.arange(8).expand(rows, -1) % WIDTHS[-1], None)


def test_gradients_by_factors_are_those_by_the_product() -> None:
    """Equation (10): grad_L g = grad f(W) R^T, grad_R g = L^T grad f(W), W = L R."""
    dense = make_perceptron(WIDTHS)
    low = dense.replace_ranks(dict.fromkeys(LAYERS, 3))
    params = drawn(low, 2)
    whole = dict(params)
    for name in LAYERS:
        product = whole.pop(f"{name}.left") @ whole.pop(f"{name}.right")
        whole[f"{name}.weight"] = product.mT
    of_low, by_factors = compute_gradients(low, params, batch(2), None)
    of_whole, by_weights = compute_gradients(
        dense, {n: whole[n] for n in dense.shapes}, batch(2), None
    )
    torch.testing.assert_close(of_low, of_whole, rtol=1e-12, atol=1e-12)
    for name in LAYERS:
        by = by_weights[f"{name}.weight"].mT
        left, right = params[f"{name}.left"], params[f"{name}.right"]
        torch.testing.assert_close(by_factors[f"{name}.left"], by @ right.mT)
        torch.testing.assert_close(by_factors[f"{name}.right"], left.mT @ by)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_zeros_beyond_the_rank_change_nothing_and_stay(decay: float) -> None:
    """Equation (12), over 20 steps with momentum and Frobenius decay."""
    share = torch.ones(1, 2, dtype=DOUBLE)
    cohort = everyone(share)
    streams = Streams([3], [0], dtype=DOUBLE)
    data = local_data([[20, 30]], WIDTHS[0], WIDTHS[-1], streams, batch_size=5, steps=20)
    settings = FedHm.Settings(milestones=(), masked_loss=False)
    values = make_hyper(1, frobenius_decay=decay)
    assert set(values) >= set(HYPER)
    dense = make_perceptron(WIDTHS)
    small, large = (dense.replace_ranks(dict.fromkeys(LAYERS, r)) for r in (2, 4))
    params = drawn(small, 2)
    padded = dict(params)
    for name in LAYERS:
        left, right = params[f"{name}.left"], params[f"{name}.right"]
        padded[f"{name}.left"] = torch.nn.functional.pad(left, (0, 2))
        padded[f"{name}.right"] = torch.nn.functional.pad(right, (0, 0, 0, 2))
    pairs = [(f"{name}.left", f"{name}.right") for name in LAYERS]
    penalty = make_frobenius_penalty(pairs, torch.full((2,), decay, dtype=DOUBLE))
    factors = [name for pair in pairs for name in pair]
    ends = []
    for network, start in ((small, params), (large, padded)):
        own = {name: block.clone() for name, block in start.items()}
        work = data.select_cohort(0, cohort)
        train_(network, own, work, settings, values, penalty, undecayed=factors)
        ends.append(own)
    for name in LAYERS:
        for side, cut in (("left", (..., slice(2))), ("right", (..., slice(2), slice(None)))):
            one, other = ends[0][f"{name}.{side}"], ends[1][f"{name}.{side}"]
            assert not torch.allclose(one, params[f"{name}.{side}"])
            torch.testing.assert_close(other[cut], one, rtol=1e-12, atol=1e-13)
            assert other.abs().sum() == pytest.approx(one.abs().sum().item(), rel=1e-12)
