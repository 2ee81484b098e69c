"""Networks of steps: low-rank convolutions against dense ones (FedHM, section 2.2), normalisation
that padding does not touch.
"""

from __future__ import annotations

import pytest
import torch
from support.network_bench import BOTH, CLOSE, F64, IMAGE, STEPS, B, N, draw_normal, draw_params
from support.training_scores import score_training
from torch.nn import functional

from otafl.core.contracts import Batch
from otafl.core.errors import UserError
from otafl.models.layer_contract import Unroll, roll_weight, to_kernels, unroll_weight
from otafl.models.layers import Conv, MeanPool, Norm, Relu
from otafl.models.network import Network

pytestmark = pytest.mark.exact


@BOTH
def test_low_rank_is_the_convolution_of_its_product(unroll: Unroll) -> None:
    """W[n, m, a, b] = sum_r of the second kernel at the one, the first at the other."""
    step = Conv("a", 2, 5, 3, 2, 1, has_bias=True, rank=3)
    low = Network((2, 6, 9), (step, Relu(0.1), MeanPool()), unroll)
    params, x = draw_params(low), draw_normal(N, B, 2, 6, 9, seed=9)
    first, second = to_kernels(params["a.left"], params["a.right"], 3, unroll)
    if unroll == "vertical_first":
        assert first.shape == (N, 3, 2, 3, 1)
        assert second.shape == (N, 5, 3, 1, 3)
        weight = torch.einsum("onrb,orma->onmab", second[:, :, :, 0], first[..., 0])
    else:
        assert first.shape == (N, 3, 2, 1, 3)
        assert second.shape == (N, 5, 3, 3, 1)
        weight = torch.einsum("onra,ormb->onmab", second[..., 0], first[:, :, :, 0])
    matrix = params["a.left"] @ params["a.right"]
    torch.testing.assert_close(roll_weight(matrix, (5, 2, 3, 3), unroll), weight, **CLOSE)
    torch.testing.assert_close(unroll_weight(weight, unroll), matrix, **CLOSE)
    for row, scores in enumerate(low.logits(params, x)):
        seen = functional.conv2d(x[row], weight[row], params["a.bias"][row], 2, 1)
        expected = functional.leaky_relu(seen, 0.1).mean((2, 3))
        torch.testing.assert_close(scores, expected, **CLOSE)


def test_padding_is_in_no_statistics() -> None:
    """A row of fewer samples than the minibatch does as it does alone, in scores and gradients."""
    network = Network(IMAGE, (*STEPS[:6], Norm("i", 7), *STEPS[6:]))
    params, x = draw_params(network), draw_normal(N, B, *IMAGE, seed=9)
    y = torch.arange(N * B).remainder(3).view(N, B)
    counts = (4, 3, 2)
    weight = torch.zeros(N, B, dtype=F64)
    for row, count in enumerate(counts):
        weight[row, :count] = 1 / count
    batch = Batch(x, y, weight)
    scores = score_training(network, params, x, weight)
    loss, grads = network.compute_gradients(params, batch)
    for row, count in enumerate(counts):
        own = {name: block[row : row + 1] for name, block in params.items()}
        part = Batch(x[row : row + 1, :count], y[row : row + 1, :count], None)
        expected = score_training(network, own, part.x)
        torch.testing.assert_close(scores[row : row + 1, :count], expected, **CLOSE)
        alone, by = network.compute_gradients(own, part)
        torch.testing.assert_close(loss[row : row + 1], alone, **CLOSE)
        for name, grad in by.items():
            torch.testing.assert_close(grads[name][row : row + 1], grad, rtol=0, atol=1e-11)


def test_batch_normalisation_of_one_number_is_refused() -> None:
    network = Network((2, 1, 1), (Conv("a", 2, 3), Norm("b", 3), MeanPool()))
    params = draw_params(network)
    with pytest.raises(
        UserError, match=r"training.batch_size: .* at least 2, or model.norm: group"
    ):
        score_training(network, params, draw_normal(N, 1, 2))
    assert score_training(network, params, draw_normal(N, 2, 2)).isfinite().all()
