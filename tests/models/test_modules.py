"""Low-rank layers as PyTorch modules, against the dense product and otafl's own model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank
from otafl.models import LayeredModel, build
from otafl.models.linear_layer import make_chain
from otafl.models.modules import Recipe, build_module

pytestmark = pytest.mark.exact


def module(point: LowRank, bias: Tensor, row: int = 0) -> Any:
    """The two thin layers of a row of a point."""
    inputs, outputs = point.u.shape[1], point.v.shape[1]
    model = LayeredModel(make_chain([inputs, outputs]))
    params = {"u0": point.u, "s0": point.s, "v0": point.v, "b0": bias}
    one = model.build_module({name: block[row] for name, block in params.items()}, (inputs,))
    assert isinstance(one, nn.Sequential)
    return one[0]


def test_by_hand() -> None:
    """2 e_1 e_2^T and bias (10, 20): x = (3, 4) gives (10, 26)."""
    u, v = torch.tensor([[[1.0], [0.0]]]), torch.tensor([[[0.0], [1.0]]])
    thin = module(LowRank(u, torch.tensor([[2.0]]), v), torch.tensor([[10.0, 20.0]]))
    torch.testing.assert_close(thin(torch.tensor([3.0, 4.0])), torch.tensor([10.0, 26.0]))


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
