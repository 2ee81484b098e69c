"""A user's module against the same network written out."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from support.layered_bench import CLOSE, WIDTHS, N, draw_batch, draw_params, draw_uniform
from support.training_scores import score_training
from torch.utils.checkpoint import checkpoint
from twins.setting import mlp

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.models import LayeredModel, Model, build
from otafl.models.module_model import ModuleModel
from otafl.scenario import load_scenario

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


def test_module_is_the_same_network() -> None:
    model = mlp(WIDTHS)
    module = ModuleModel(sequential(), (WIDTHS[0],), WIDTHS[-1])
    params, batch = draw_params(model), draw_batch(weighted=True)
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


class Counting(torch.nn.Module):
    """Has a constant table, and counts its calls if it is told to."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.linear, self.counts = torch.nn.Linear(6, 4), counts
        self.register_buffer("table", torch.full((6,), 2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.calls += 1
        out: torch.Tensor = self.linear(self.table * x)
        return out


def test_constant_buffers_are_used_and_changing_ones_refused() -> None:
    model = ModuleModel(Counting(counts=False), (6,), 4)
    assert list(model.shapes) == ["linear.weight", "linear.bias"]
    params, x = {"linear.weight": torch.ones(2, 4, 6), "linear.bias": torch.zeros(2, 4)}, 1.0
    assert model.logits(params, torch.full((2, 1, 6), x)).unique().tolist() == [12.0]
    with pytest.raises(UserError, match=r"changes the buffer 'calls'.*GroupNorm"):
        ModuleModel(Counting(counts=True), (6,), 4)


def make_normed() -> torch.nn.Sequential:
    shared = torch.nn.Dropout(0.25)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), shared, torch.nn.ReLU(), shared,
        torch.nn.Linear(5, 4),
    ).double()  # fmt: skip


def draw_module_params(model: Model, rows: int = 2) -> Tensors:
    torch.manual_seed(1)
    return {n: torch.randn(rows, *s, dtype=torch.float64) for n, s in model.shapes.items()}


def test_batch_normalisation_is_torchs() -> None:
    """In training on the minibatch, padding apart; in a test on statistics that are given."""
    module = make_normed()
    model = ModuleModel(module, (6,), 4)
    assert model.batch_norms
    assert model.norms == ("1.weight", "1.bias")
    params, x = draw_module_params(model), torch.randn(2, 9, 6, dtype=torch.float64)
    weight = (torch.arange(9) < 7).double().expand(2, -1) / 7.0
    found = params | model.moments(params, x)
    for row in range(2):
        module.load_state_dict({n: b[row] for n, b in params.items()}, strict=False)
        module[1].momentum = None  # the statistics of one pass
        module[1].reset_running_stats()
        module.train()[2].eval()
        trained = module(x[row])
        torch.testing.assert_close(score_training(model, params, x)[row], trained)
        tested = module.eval()(x[row])
        torch.testing.assert_close(model.logits(found, x)[row], tested)
        padded = score_training(model, params, x, weight)[row, :7]
        torch.testing.assert_close(padded, module.train()[:2](x[row, :7]).relu() @ params[
            "5.weight"][row].mT + params["5.bias"][row])  # fmt: skip
    with pytest.raises(UserError, match=r"^training.batch_size: .*GroupNorm"):
        score_training(model, params, x[:, :1])


def test_dropout_of_channels() -> None:
    layers = torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.Dropout2d(0.5), torch.nn.Flatten()
    model = ModuleModel(torch.nn.Sequential(*layers), (1, 2, 2), 12)
    params = {"0.weight": torch.zeros(1, 3, 1, 3, 3), "0.bias": torch.ones(1, 3)}
    scores = score_training(model, params, torch.ones(1, 50, 1, 2, 2), None, torch.tensor([5]))
    channels = scores.view(50, 3, 4)
    assert (channels == channels[..., :1]).all()
    assert scores.unique().tolist() == [0.0, 2.0]


class Net(torch.nn.Module):
    """A layer in a function of the layer and samples."""

    def __init__(self, function: Callable[[torch.nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.function = torch.nn.Linear(6, 4), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.linear, x)


class WithRecurrence(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(2, 3, batch_first=True)
        self.out = torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.layer(x.view(-1, 3, 2))[0][:, -1])
        return out


class Complex(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.complex64) @ self.weight).abs()


def fill(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(len(x), 4)
    out[:] = layer(x)
    return out


IMPOSSIBLE: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "scores": (lambda: torch.nn.Linear(6, 9), r"shape \[1, 9\] for one.*expected \[1, 4\]"),
    "tuple": (lambda: Net(lambda layer, x: (layer(x), layer(x))), "Net returns a tuple"),
    "complex": (Complex, "'weight' of Complex is complex64.*view_as_complex"),
    "detached": (
        lambda: Net(lambda layer, x: layer(x).detach()),
        "scores of Net have no real gradient",
    ),
    "checkpoint": (
        lambda: Net(lambda layer, x: checkpoint(layer, x, use_reentrant=False)),
        "Net .*in the backward pass.*without torch.utils.checkpoint",
    ),
    "reentrant checkpoint": (
        lambda: Net(lambda layer, x: checkpoint(layer, x + layer(x).sum(), use_reentrant=True)),
        r"Net at .*test_custom.py:\d+ uses an autograd.Function or torch.utils.checkpoint",
    ),
    "item": (
        lambda: Net(lambda layer, x: layer(x) if x.mean().item() > 0 else layer(-x)),
        r"Net at .*test_custom.py:\d+ decides by the values of a tensor.*torch.where",
    ),
    "recurrent": (
        WithRecurrence,
        "WithRecurrence at .* has a torch.nn.LSTM.*torch.nn.Linear, or use model: lstm",
    ),
    "fill": (lambda: Net(fill), "in place.*new tensor"),
    "random": (lambda: Net(lambda layer, x: layer(x + torch.rand_like(x))), "draws random numbers"),
    "lazy": (lambda: torch.nn.LazyLinear(4), "'weight' of LazyLinear has no shape yet"),
    "frozen": (lambda: torch.nn.Linear(6, 4).requires_grad_(False), "Linear without any.*requires"),
}


def test_modules_that_cannot_be_trained() -> None:
    """One sentence has the class, its line where torch knows it, and the way out."""
    wrong = {}
    for name, (make, words) in IMPOSSIBLE.items():
        with pytest.raises(UserError) as refused:
            ModuleModel(make(), (6,), 4)
        said = str(refused.value)
        if not re.search(f"^model: .*{words}", said) or len(said) >= 350 or "\n" in said:
            wrong[name] = said
    assert wrong == {}


def test_a_module_with_other_weights_at_each_call_is_refused() -> None:
    """A second call would give another module to the next stack, or to an export."""
    draw = np.random.default_rng(0)

    def make(input_shape: Any, classes: int, drawn: bool) -> torch.nn.Module:
        module = torch.nn.Linear(6, classes)
        numbers = draw if drawn else np.random.default_rng(0)
        module.bias = torch.nn.Parameter(torch.from_numpy(numbers.random(classes)).float())
        return module

    def build_model(drawn: bool) -> Model:
        given = {"name": make, "drawn": drawn}
        return build(load_scenario({"name": "s", "model": given}).model, (6,), 4)

    assert build_model(False).num_params == 28
    with pytest.raises(UserError, match=r"model.name: .*returned other weights.*default_rng\(0\)"):
        build_model(True)


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


class OfShapeless(LayeredModel):
    def __init__(self, input_shape: Any, classes: int) -> None:
        super().__init__(mlp((6, 4, 4)).chain)
        self.shapes["scale"] = ()


class TestCallables:
    NAME = "models_of_mine:network"

    @pytest.fixture(autouse=True)
    def _mine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("models_of_mine")
        vars(module).update(network=network, shapeless=OfShapeless)
        monkeypatch.setitem(sys.modules, "models_of_mine", module)

    def built(self, name: str = NAME, **keys: Any) -> Model:
        section = registry.load_settings_class("model", name)(name=name, **keys)
        return build(section, (6,), 4)

    def test_a_module(self) -> None:
        model = self.built(width=3)
        assert isinstance(model, ModuleModel)
        assert model.shapes["0.weight"] == (3, 6)

    def test_neither(self) -> None:
        with pytest.raises(UserError, match=r"returned a str; expected a torch.nn.Module or an"):
            self.built(width=0)

    def test_a_model_with_a_parameter_without_dimensions(self) -> None:
        with pytest.raises(UserError, match=r"'scale' of shape \(\); expected \(1,\)"):
            self.built("models_of_mine:shapeless")
