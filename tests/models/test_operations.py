"""Holds the operations that models say they cost to what is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from contract.small import model as section
from support.operations import Counted
from support.training_scores import score_training
from torch.nn.attention import SDPBackend, sdpa_kernel

from otafl import models
from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.core.rng import Streams, declare_family
from otafl.losses.cross_entropy import NextToken
from otafl.models.base import Model
from otafl.models.module_model import ModuleModel
from otafl.models.network import Network, ResizableModel

pytestmark = pytest.mark.exact

B, CLASSES = 6, 10
WITHIN = 0.05
DRAW = declare_family("test_operations", __name__)

LARGER: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [50, 20]},
    "cnn": {"channels": [6, 12], "hidden": [30]},
    "conv_net": {"channels": [8, 16], "norm": "group"},
    "resnet": {"channels": [4, 8], "norm": "none"},
    "lstm": {"hidden": 20, "bidirectional": True},
    "token_lstm": {"hidden": 20, "layers": 2},
    "ngram": {"context": 3, "hidden": [20]},
}


def counted(model: Model, shape: tuple[int, ...]) -> tuple[Counted, Counted]:
    """Count a forward pass, and a gradient, of B samples."""
    streams = Streams([3], [0], dtype=torch.float64)
    params = model.init(lambda name, shape: streams.draw_uniform(DRAW / name, 0, shape).clone())
    x = streams.draw_uniform(DRAW / "x", 0, (B, *shape)).clone()
    y = torch.arange(B)[None] % CLASSES
    if model.scores_positions:
        x = torch.floor(CLASSES * x)
        y = x.long()
        model.loss = NextToken()
    batch = Batch(x, y, None)
    with sdpa_kernel(SDPBackend.MATH):  # a fused backward pass computes the scores once more
        with Counted() as forward:
            score_training(model, params, x)
        with Counted() as both:
            model.compute_gradients(params, batch)
    return forward, both


def built(name: str, settings: Mapping[str, Any]) -> tuple[Model, tuple[int, ...]]:
    shape: tuple[int, ...] = (12, 5) if name == "lstm" else (1, 16, 16)
    if registry.load_component("model", name).scores_positions:
        shape = (12,)
    config = registry.load_settings_class("model", name).model_validate(
        section(name) | dict(settings)
    )
    return models.build(config, shape, CLASSES), shape


def list_differences(model: Model, shape: tuple[int, ...]) -> Iterator[str]:
    """List what differs from what is counted: products to the last one, all together by 5 %."""
    forward, both = counted(model, shape)
    if forward.products != 2 * B * model.macs:
        yield f"{forward.products} products forward, not {2 * B * model.macs}"
    if both.products != B * (6 * model.macs - 2 * model.first_macs):
        yield f"{both.products} products forward and backward"
    if model.count_training_flops(B) != pytest.approx(both.total, rel=WITHIN):
        yield f"{both.total} operations, not {model.count_training_flops(B)}"


def test_operations_are_those_of_a_gradient() -> None:
    wrong = {}
    for name in registry.list_names("model"):
        if found := list(list_differences(*built(name, LARGER.get(name, {})))):
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "unroll"), [("cnn", "horizontal_first"), ("resnet", "vertical_first")]
)
def test_operations_of_low_rank_networks(name: str, unroll: Any) -> None:
    """All layers that can be are low-rank, the first one too."""
    model, shape = built(name, LARGER.get(name, {}))
    assert isinstance(model, ResizableModel)
    whole = model.build_network(lambda channels: channels)
    dense = Network(whole.image, whole.layers, unroll)
    network = dense.replace_ranks(dict.fromkeys(dense.factorisable_names, 3))
    assert 0 < network.first_macs < dense.first_macs
    assert list(list_differences(network, shape)) == []


def test_a_users_module_is_counted() -> None:
    """Its products are, forward and backward; what is elementwise in it is not known."""
    front = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.LayerNorm(20), torch.nn.ReLU())
    model = ModuleModel(torch.nn.Sequential(front, torch.nn.Linear(20, CLASSES)), (8,), CLASSES)
    assert (model.macs, model.first_macs, model.elementwise) == (360, 160, 0)
    forward, both = counted(model, (8,))
    assert forward.products == 2 * B * 360
    assert both.products == model.count_training_flops(B) == B * (6 * 360 - 2 * 160)
