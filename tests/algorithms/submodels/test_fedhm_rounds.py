"""Rounds of FedHM: what is sent and kept, and what is refused."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from support.fedhm_bench import (
    make_cohort,
    make_hyper,
    make_method,
    make_perceptron,
    make_received,
    run_local_updates,
)
from torch import Tensor
from twins.setting import local_data

from otafl.algorithms.submodels.fedhm import FedHm
from otafl.core.contracts import Context
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import unflatten
from otafl.models.network import Network
from otafl.models.resnet import ResNet
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact

WIDTHS = (6, 8, 7, 5)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
MIXED = [[0, 2, 1, 1, 0], [1, 2, 2, 2, 1]]
SENDS = pytest.mark.parametrize("sends", ["factors", "product", "tangent"])
DOUBLE = torch.float64


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def resnet() -> ResNet:
    return ResNet(ResNet.Settings(blocks=(1, 1), channels=(3, 4)), (1, 4, 4), 3)


@SENDS
def test_columns_of_absent_classes_stay(sends: str) -> None:
    """A class that nobody has keeps its weights; one that a single device has gets that device's,
    not a fifth of it."""
    streams = Streams([5], [0], dtype=DOUBLE)
    data = local_data([SIZES[0]], 6, 5, streams, 4, 3)
    y = data.y
    own = data.index.view(5, -1)
    for k in range(5):
        held = own[k, : SIZES[0][k]]
        y[held] = y[held] % 3
    y[own[3, 0]] = 3  # class 3 at device 3 alone, class 4 nowhere
    ours = make_method(make_perceptron(WIDTHS), sends=sends, levels=(1.0, 0.5, 0.25))
    values = make_hyper(1)
    server, _ = ours.init(streams, values)
    cohort = make_cohort(MIXED[:1])
    payload, _ = run_local_updates(
        ours, server, cohort, data.select_cohort(0, cohort), values, streams
    )
    received = make_received(payload, cohort)
    new = ours.update_server(server, received, Context(cohort, values, streams, 0))
    before, after = (unflatten(one["model"], ours.model.shapes) for one in (server, new))
    for part in ("weight", "bias"):
        name = f"classifier.{part}"
        assert torch.equal(before[name][..., 4], after[name][..., 4])
        if sends == "factors":
            shapes, group, row = ours.layout.networks[1].shapes, payload[1], 1
        else:
            shapes, group, row = ours.layout.uplink_shapes, payload[0], 3
        alone = unflatten(group.tensors["model"][row : row + 1], shapes)[name]
        close(after[name][..., 3], before[name][..., 3] + alone[..., 3])
        assert float(alone[..., 3].abs().max()) > 1e-3


def test_what_goes_down_and_up() -> None:
    """Parameters of a level's model; of coordinates a device of smaller rank knows fewer, and a
    dense one gets the frame too."""
    cohort = make_cohort([[0, 1, 2, 2, 0]])
    streams = Streams([5], [0], dtype=DOUBLE)
    data = local_data([SIZES[0]], 6, 5, streams, 4, 1)
    biases, classifier, dense = 8 + 7, 7 * 5 + 5, 6 * 8 + 8 * 7
    factors = [(6 + 8) * r + (8 + 7) * r for r in (4, 2)]
    sizes = [biases + classifier + weights for weights in (dense, *factors)]
    for sends in ("factors", "product", "tangent"):
        ours = make_method(
            make_perceptron(WIDTHS), levels=(1.0, 0.5, 0.25), sends=sends, masked_loss=False
        )
        assert [level.num_params for level in ours.levels] == sizes
        server, _ = ours.init(streams, make_hyper(1))
        down = ours.broadcast(server, cohort).coordinates_per_row
        extra = factors[0] if sends == "tangent" else 0
        assert down is not None
        assert down.tolist() == [sizes[0] + extra, *(sizes[i] for i in (1, 2, 2)), sizes[0] + extra]
        payload, _ = run_local_updates(
            ours, server, cohort, data.select_cohort(0, cohort), make_hyper(1), streams
        )
        if sends == "factors":
            assert [group.num_coordinates for group in payload] == sizes
            assert all(group.mask is None for group in payload)
        elif sends == "product":
            assert [group.num_coordinates for group in payload] == sizes[:1]
            assert payload[0].mask is None
        else:
            assert [group.num_coordinates for group in payload] == [sizes[1]]
            assert payload[0].mask is not None
            known = payload[0].mask["model"].sum(1).tolist()
            assert known == [sizes[i] for i in (1, 1, 2, 2, 1)]
            assert not payload[0].tensors["model"][~payload[0].mask["model"]].any()


def test_truncation_gap() -> None:
    """Energy of the singular values that a level cuts off, over layers, mean over levels."""
    ours = make_method(make_perceptron(WIDTHS), levels=(1.0, 0.5, 0.25))
    server, _ = ours.init(Streams([5, 5], [0, 1], dtype=DOUBLE), make_hyper(2))
    params = unflatten(server["model"], ours.model.shapes)
    s = [torch.linalg.svdvals(params[f"linear{i}.weight"]).square() for i in (1, 2)]
    whole = sum(one.sum(1) for one in s)
    lost = [sum(one[:, r:].sum(1) for one in s) / whole for r in (4, 2)]
    close(ours.compute_metrics(server, {})["truncation_gap"], sum(lost) / 2)


def test_layers_that_stay_dense() -> None:
    """By default those that the model names, and no layer of a perceptron."""
    assert [one.name for one in make_method(make_perceptron(WIDTHS)).layout.layers.values()] == [
        "linear1",
        "linear2",
    ]
    model = resnet()
    assert model.factorisable_names[0] == "stem.conv"
    assert len(make_method(model).layout.layers) == 2
    assert len(make_method(model, dense_prefix=1).layout.layers) == 4
    assert len(make_method(Network(model.image, model.layers, dense_prefix=2)).layout.layers) == 3
    own = Network(model.image, model.layers)  # a user-defined one: all except the first convolution
    assert len(make_method(own).layout.layers) == 4
    with pytest.raises(UserError, match="use 4 or less"):
        make_method(model, dense_prefix=5)
    assert not make_method(model, dense_prefix=5, levels=(1.0,)).layout.layers


def test_refusals() -> None:
    for settings, said in (
        ({"levels": (0.5, 1.0)}, "got 0.5, 1, use 1, 0.5"),
        ({"levels": (0.5, 0.5)}, "levels must decrease"),
        ({"temperature": 1e-3}, "temperature: 0.001 gives level 0.125"),
    ):
        with pytest.raises(ValidationError, match=said):
            FedHm.Settings.model_validate(settings)
    assert FedHm.describe_payload(FedHm.Settings()).needs == "each"
    for settings in ({"sends": "product"}, {"sends": "tangent"}):
        assert FedHm.describe_payload(FedHm.Settings.model_validate(settings)).needs == "mean"
    flat = SoftmaxRegression(SoftmaxRegression.Settings(), (6,), 5)
    with pytest.raises(UserError, match="use mlp, cnn, conv_net, resnet or vgg"):
        make_method(flat)
