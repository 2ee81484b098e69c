"""Low-rank layers as PyTorch modules, against the dense product and otafl's own model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models import LayeredModel, build
from otafl.models.linear_layer import Linear, make_chain
from otafl.models.modules import Recipe, build_module

pytestmark = pytest.mark.exact


def small(name: str) -> Any:
    """The model of a name, kept small, for 12 x 12 pixels or a sequence of them."""
    kind = registry.load_settings_class("model", name)
    keys = {key.removeprefix("model."): value for key, value in kind.example.items()}
    return build(kind(**{key: value for key, value in keys.items() if "." not in key}), (144,), 3)


def started(model: Any) -> Tensors:
    streams = Streams([2], [0], dtype=torch.float64)
    return model.init(lambda name, shape: streams.draw_uniform(f"init/{name}", 0, shape))


def make_recipe(name: str, shape: tuple[int, ...]) -> Recipe:
    return Recipe(name=name, input_shape=list(shape), classes=3, together=None, refused=None)


def test_a_module_scores_as_its_model() -> None:
    """Or there is none, which is said."""
    x = torch.randn(1, 5, 144, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    wrong = []
    for name in ("mlp", "cnn", "transformer", "conv_net", "resnet", "vgg", "linear", "lstm"):
        model = small(name)
        params = started(model)
        params |= model.moments(params, x)
        recipe = make_recipe(name, (144,))
        one = {key: block[0] for key, block in params.items()}
        if name == "lstm":
            with pytest.raises(UserError, match="'lstm' cannot be exported as a plain PyTorch"):
                build_module(model, recipe, one)
        elif not torch.allclose(build_module(model, recipe, one)(x[0]), model.logits(params, x)[0]):
            wrong.append(name)
    assert wrong == []


def test_layers_of_a_chain_may_be_numbered_from_any_number() -> None:
    first, relu, last = make_chain([4, 5, 3])
    assert isinstance(first, Linear)
    assert isinstance(last, Linear)
    model = LayeredModel((replace(first, name="1"), relu, replace(last, name="2")))
    params = started(model)
    module = model.build_module({name: block[0] for name, block in params.items()}, (4,))
    assert module is not None
    x = torch.rand(1, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x[0]), model.logits(params, x)[0])
