"""A user's module against the same network written out.

Mutations that must fail: buffers accepted, one row's parameters for all rows, the module's own
start.
"""

from __future__ import annotations

import sys
import types
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.layered_bench import CLOSE, WIDTHS, N, draw_batch, draw_params, draw_uniform
from twins.setting import mlp

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models import LayeredModel, Model, build
from otafl.models.custom import ModuleModel

pytestmark = pytest.mark.exact


def sequential() -> torch.nn.Sequential:
    module = torch.nn.Sequential()
    for i, (m, n) in enumerate(pairwise(WIDTHS)):
        if i:
            module.append(torch.nn.ReLU())
        module.append(torch.nn.Linear(m, n))
    return module.double()


def as_module(params: Tensors) -> Tensors:
    """Parameters of the perceptron under a Sequential's names; its weights are transposed."""
    out = {}
    for i in range(len(WIDTHS) - 1):
        out[f"{2 * i}.weight"] = params[f"weight{i}"].mT.contiguous()
        out[f"{2 * i}.bias"] = params[f"bias{i}"]
    return out


@pytest.mark.parametrize("weighted", [False, True])
def test_module_is_the_same_network(weighted: bool) -> None:
    model = mlp(WIDTHS)
    module = ModuleModel(sequential(), (WIDTHS[0],), WIDTHS[-1])
    params, batch = draw_params(model), draw_batch(weighted)
    own = as_module(params)
    assert {name: tuple(b.shape[1:]) for name, b in own.items()} == module.shapes
    assert (module.macs, module.num_params) == (model.macs, model.num_params)
    expected = model.logits(params, batch.x)
    torch.testing.assert_close(module.logits(own, batch.x), expected, **CLOSE)
    shared = model.logits(params, batch.x[:1])
    torch.testing.assert_close(module.logits(own, batch.x[:1]), shared, **CLOSE)
    loss, grads = model.compute_gradients(params, batch)
    module_loss, module_grads = module.compute_gradients(own, batch)
    torch.testing.assert_close(module_loss, loss, **CLOSE)
    for name, grad in as_module(grads).items():
        torch.testing.assert_close(module_grads[name], grad, **CLOSE)


def test_module_start() -> None:
    """Matrices uniform in +-1/sqrt(fan_in), trial by trial; norm layers as they are; biases 0."""
    source = torch.nn.Sequential(torch.nn.Linear(100, 6), torch.nn.LayerNorm(6)).double()
    start = ModuleModel(source, (100,), 6).init(draw_uniform)
    weight = start["0.weight"]
    assert weight.shape == (N, 6, 100)
    assert 0.099 < weight.abs().max() <= 0.1
    assert not torch.equal(weight[0], weight[1])
    for name, value in {"0.bias": 0.0, "1.weight": 1.0, "1.bias": 0.0}.items():
        assert torch.equal(start[name], torch.full((N, 6), value, dtype=torch.float64))


def test_module_with_buffers_is_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(UserError, match=r"buffer '1.running_mean'.*GroupNorm"):
        ModuleModel(module, (6,), 4)


class Dropping(torch.nn.Module):
    """Drops by a function, in a line of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(torch.nn.functional.dropout(x, 0.2, self.training))
        return out


def test_module_with_dropout_is_refused() -> None:
    layers = torch.nn.Linear(6, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 4)
    module = torch.nn.Sequential(*layers)
    with pytest.raises(UserError, match=r"\(dropout '1'\).*leave dropout out.*eval mode"):
        ModuleModel(module, (6,), 4)
    with pytest.raises(UserError, match=r"^model: .*draws random numbers, which .*eval mode"):
        ModuleModel(Dropping(), (6,), 4)
    assert ModuleModel(module.eval(), (6,), 4).macs == 50
    assert ModuleModel(Dropping().eval(), (6,), 4).macs == 24


def test_module_of_the_wrong_number_of_scores_is_refused() -> None:
    with pytest.raises(UserError, match=r"shape \[1, 4\] for one sample; expected \[1, 9\]"):
        ModuleModel(torch.nn.Linear(6, 4), (6,), 9)


def test_a_modules_start_is_the_streams_not_the_modules() -> None:
    """Two instances of a module, which torch's global generator starts differently, are the same
    model; norm layers keep their ones and biases start at zero."""

    def start() -> Tensors:
        layers = torch.nn.Linear(6, 4), torch.nn.GroupNorm(2, 4), torch.nn.Linear(4, 3)
        model = ModuleModel(torch.nn.Sequential(*layers), (6,), 3)
        streams = Streams([1], [0])
        return model.init(lambda name, shape: streams.draw_uniform(f"init/{name}", 0, shape))

    first, second = start(), start()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert first["1.weight"].eq(1.0).all()
    assert first["0.bias"].eq(0.0).all()
    assert first["0.weight"].std() > 0.1


def network(
    input_shape: tuple[int, ...], classes: int, width: int
) -> torch.nn.Module | Model | str:
    """A module, from a width of 10 on a model, and none at a width of 0."""
    if not width:
        return "network"
    if width < 10:
        return torch.nn.Sequential(
            torch.nn.Linear(*input_shape, width), torch.nn.Linear(width, classes)
        )
    return mlp((*input_shape, width, classes))


class TestCallables:
    NAME = "models_of_mine:network"

    @pytest.fixture(autouse=True)
    def _mine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("models_of_mine")
        vars(module)["network"] = network
        monkeypatch.setitem(sys.modules, "models_of_mine", module)

    def built(self, **keys: Any) -> Model:
        section = registry.load_settings_class("model", self.NAME)(name=self.NAME, **keys)
        return build(section, (6,), 4)

    def test_a_module(self) -> None:
        model = self.built(width=3)
        assert isinstance(model, ModuleModel)
        assert model.shapes["0.weight"] == (3, 6)
        assert model.describe() == {
            "kind": "module",
            "name": self.NAME,
            "options": {"width": 3, "input_shape": (6,), "classes": 4},
        }

    def test_a_model(self) -> None:
        model = self.built(width=12)
        assert isinstance(model, LayeredModel)
        assert model.shapes["weight0"] == (6, 12)

    def test_neither(self) -> None:
        with pytest.raises(UserError, match=r"returned a str; expected a torch.nn.Module or an"):
            self.built(width=0)

    def test_keys_that_do_not_fit(self) -> None:
        with pytest.raises(UserError, match=r"model: .* does not fit the section's keys"):
            self.built(height=3)
