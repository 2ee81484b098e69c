"""FedHM's facts: weights, sizes, and the masked loss."""

from __future__ import annotations

import math

import pytest
import torch
from support.fedhm_bench import apply_weights, make_cohort, make_method, make_perceptron
from torch import Tensor

from otafl.algorithms.submodel_training import compute_gradients
from otafl.core.contracts import Batch
from otafl.models.resnet import ResNet

pytestmark = pytest.mark.exact

WIDTHS = (6, 8, 7, 5)
DOUBLE = torch.float64


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def test_weights_as_printed() -> None:
    """F10, one device at each level."""
    cohort = make_cohort([[0, 1, 2, 3]])
    paper = [0.277392, 0.250995, 0.238754, 0.232859]
    code = [0.382535, 0.313193, 0.209940, 0.094332]
    for rule, expected in (("paper", paper), ("inverse", code)):
        ours = make_method(make_perceptron(WIDTHS), temperature=5.0, weight_rule=rule)
        close(
            apply_weights(ours, cohort).normalised_weight,
            torch.tensor(expected, dtype=DOUBLE),
            5e-7,
        )
    ours = make_method(make_perceptron(WIDTHS))
    assert apply_weights(ours, cohort).weight.tolist() == [1.0] * 4


def test_masked_loss_by_hand() -> None:
    """F11: scores (1, 2, 3), the third class absent: as if its score were 0."""
    model = make_perceptron((1, 3))
    bias = torch.tensor([[1.0, 2.0, 3.0]], dtype=DOUBLE)
    params = {"classifier.weight": bias.new_zeros(1, 1, 3), "classifier.bias": bias}
    batch = Batch(bias.new_zeros(1, 1, 1), torch.zeros(1, 1).long(), None)
    loss, grads = compute_gradients(model, params, batch, torch.tensor([[True, True, False]]))
    assert float(loss) == pytest.approx(1.407606, abs=5e-7)
    assert float(grads["classifier.bias"][0, 2]) == 0.0
    assert float(compute_gradients(model, params, batch, None)[0]) == pytest.approx(
        2.407606, abs=5e-7
    )


@pytest.mark.parametrize("unroll", ["vertical_first", "horizontal_first"])
def test_sizes_of_resnets(unroll: str) -> None:
    """The paper's Tables 2 and 3: 11.17, 4.16, 2.21, 1.24 M and 21.33, 8.40, 4.99, 3.28 M."""
    small = ResNet(ResNet.Settings(name="resnet18"), (3, 32, 32), 10)
    ours = make_method(small, unroll=unroll, dense_prefix=3)
    assert {one.unroll for one in [*ours.layout.networks, *ours.layout.layers.values()]} == {unroll}
    assert [one.num_params for one in ours.levels] == [
        11173962,
        4157514,
        2209866,
        1236042,
    ]
    macs = [555422720, 259724288, 171643904, 127603712]
    assert [one.macs for one in ours.levels] == macs
    large = ResNet(ResNet.Settings(name="resnet34"), (3, 32, 32), 100)
    ours = make_method(large, unroll=unroll, dense_prefix=15)
    assert [one.num_params for one in ours.levels] == [
        21328292,
        8401316,
        4985252,
        3277220,
    ]
    reals = ours.layout.downlink_shapes  # what one copy of the dense model has
    assert sum(math.prod(shape) for shape in reals.values()) == 21328292


def test_energy_lost_by_truncating_a_random_resnet18() -> None:
    """F13, as torch.nn.Conv2d starts: .494, .706, .839. On layers of stages 1 to 3 alone, as the
    SVDs of the fourth take long: within .02."""
    ours = make_method(ResNet(ResNet.Settings(name="resnet18"), (3, 32, 32), 10), dense_prefix=3)
    lost, whole = torch.zeros(3), 0.0
    for i, layer in enumerate(ours.layout.layers.values()):
        if layer.outputs > 256 or (layer.outputs == 256 and i % 2):
            continue
        weight = torch.rand(1, *layer.shape, generator=torch.Generator().manual_seed(i)) - 0.5
        weight /= math.sqrt(layer.shape[1])
        s = torch.linalg.svdvals(layer.to_matrix(weight))[0].square()
        whole += float(s.sum())
        for level, ratio in enumerate((0.5, 0.25, 0.125)):
            lost[level] += s[layer.compute_rank(ratio) :].sum()
    torch.testing.assert_close(lost / whole, torch.tensor([0.494, 0.706, 0.839]), rtol=0, atol=0.02)
