"""Compiled passes of SGD steps agree with the tensor operations, which remain if refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.marks import first_is_fast
from support.rounding import assert_agree
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models import compiled_steps
from otafl.models.base import copy_params
from otafl.models.compiled_steps import AdaptiveRun
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import number_layers
from otafl.models.sgd_run import PlainRun
from otafl.scenario import expand, load_scenario

pytestmark = pytest.mark.exact


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Load the passes at once, on one thread, and copy weights of any size.

    The module is the fixture.
    """
    pytest.importorskip("numba")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(compiled_steps, "MIN_COPIED_NUMBERS", 0)
    monkeypatch.setattr(compiled_steps._kernel, "spent_s", float("inf"))
    yield compiled_steps._kernel
    torch.set_num_threads(threads)


@pytest.fixture
def any_bits(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the passes serve on this processor whatever their last bits are."""
    monkeypatch.setattr(compiled_steps.Chain, "_keeps_bits", lambda *_: True)
    return kernel


def make_params(model: LayeredModel, rows: int, turned: bool) -> Tensors:
    torch.manual_seed(1)
    params = {name: 0.3 * torch.randn(rows, *s) for name, s in model.shapes.items()}
    return model.copy_trainable(params) if turned else copy_params(params)


def make_batches(model: LayeredModel, rows: int, sizes: tuple[int, ...]) -> list[Batch]:
    """Return minibatches, every third of them with weights."""
    torch.manual_seed(2)
    first, last = model.layers[0].inputs, model.layers[-1].outputs
    out = []
    for number, size in enumerate(sizes):
        weight = torch.rand(rows, size) if number % 3 == 2 else None
        y = torch.randint(0, last, (rows, size))
        out.append(Batch(torch.randn(rows, size, first), y, weight))
    return out


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("sides", [(7, 10), (7, 3), (5, 100, 10), (6, 40, 33, 5), (3, 64, 128)])
def test_steps_agree_with_tensor_operations(
    any_bits: Any, sides: tuple[int, ...], rows: int, slope: float, turned: bool
) -> None:
    """Losses and parameters agree, also if sizes and weights of minibatches change."""
    model = LayeredModel(number_layers(list(pairwise(sides))), slope)
    batches = make_batches(model, rows, (10, 10, 10, 4, 70, 70, 1) + 17 * (3,))
    step = torch.linspace(0.01, 0.02, rows)
    found = []
    with torch.inference_mode():
        for spent_s in (-float("inf"), float("inf")):
            any_bits.spent_s = spent_s
            params = make_params(model, rows, turned)
            run = model.start_sgd(params, step)
            for batch in batches[:-1]:
                run.take_step_(batch)
            last = model.take_sgd_step_(params, batches[-1], step)
            found.append([run.sum_losses(), last, *params.values()])
    assert run._steps is not None
    assert_agree(*found)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_parameters_without_bounds(any_bits: Any, value: float) -> None:
    """Rows that diverged have the numbers of tensor operations, and leave the others alone."""
    model, step = LayeredModel(number_layers([(7, 10)])), torch.full((3,), 0.1)
    (batch,), found = make_batches(model, 3, (20,)), []
    with torch.inference_mode():
        for spent_s in (-float("inf"), float("inf")):
            any_bits.spent_s = spent_s
            params = make_params(model, 3, turned=True)
            params["bias0"][1, 4] = value
            loss = model.take_sgd_step_(params, batch, step)
            found.append([loss, *params.values()])
    expected, got = found
    assert_agree(got, expected)
    assert all(one[[0, 2]].isfinite().all() for one in got)


def test_other_bits_are_refused(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose tensor operations round otherwise keeps them."""
    model = LayeredModel(number_layers([(7, 10)]))

    def take_step_(params: Tensors, batch: Batch, step: torch.Tensor) -> torch.Tensor:
        loss = LayeredModel._take_tensor_step_(model, params, batch, step)
        return loss * (1.0 + 1e-6)

    monkeypatch.setattr(model, "_take_tensor_step_", take_step_)
    (batch,), params = make_batches(model, 2, (10,)), make_params(model, 2, turned=True)
    expected = make_params(model, 2, turned=True)
    with torch.inference_mode():
        run = model.start_sgd(params, torch.ones(2))
        run.take_step_(batch)
        loss = take_step_(expected, batch, torch.ones(2))
    assert_agree([run.sum_losses(), params], [loss, expected])
    assert model._chain._same_bits == {(2, 10): False}
    assert isinstance(run, AdaptiveRun)
    assert run._steps is None


def test_products_copy_transposed_weights_where_bits_are_equal(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LayeredModel(number_layers([(64, 10)]))
    monkeypatch.setattr(compiled_steps, "MIN_COPIED_NUMBERS", 26 * 640)
    cases = (
        (True, 26, 20, True),
        (True, 25, 20, False),
        (True, 26, 15, False),
        (False, 26, 20, False),
    )
    for same, rows, size, expected in cases:
        params = make_params(model, rows, turned=True)
        monkeypatch.setattr(compiled_steps, "keeps_copied_bits", lambda *_, same=same: same)
        memory = compiled_steps.LayerMemory.allocate(
            model.layers[0], params, size, first=True, last=True
        )
        assert (memory.straight is not None) is expected


@pytest.mark.parametrize("rows", [1, 4])
def test_a_copy_of_shared_weights_has_the_layout_of_other_copies(rows: int) -> None:
    model = LayeredModel(number_layers([(7, 10)]))
    params = {name: torch.randn(1, *shape) for name, shape in model.shapes.items()}
    shared = {name: block.expand(rows, *block.shape[1:]) for name, block in params.items()}
    own = {name: block.repeat(rows, *[1] * (block.dim() - 1)) for name, block in params.items()}
    for got, expected in zip(
        *(model.copy_trainable(p).values() for p in (shared, own)), strict=True
    ):
        assert torch.equal(got, expected)
        assert got.stride() == expected.stride()
        assert len({row.data_ptr() for row in got}) == rows


@pytest.mark.parametrize("case", ["threads", "gradients", "double"])
def test_unsuitable_steps_use_tensors(kernel: Any, case: str) -> None:
    """Steps on several threads, with gradients or in double precision use tensor operations."""
    model = LayeredModel(number_layers([(7, 10)]))
    step, params = torch.ones(2), make_params(model, 2, turned=True)
    if case == "double":
        params, step = {name: one.double() for name, one in params.items()}, step.double()
    if case == "threads":
        torch.set_num_threads(2)
    with torch.inference_mode(case != "gradients"):
        run = model.start_sgd(params, step)
    assert isinstance(run, PlainRun)


METHODS: tuple[dict[str, Any], ...] = (
    {"name": "fedavg", "sends": "model"},
    {"name": "fedprox", "penalty": 0.1, "stragglers": 0.5},
    {"name": "scaffold"},
    {"name": "fedem"},
)


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda one: one["name"])
@pytest.mark.parametrize(
    "training",
    first_is_fast([{"local_steps": 3, "batch_size": 20}, {"local_epochs": 2, "batch_size": 20}]),
)
def test_methods_agree(any_bits: Any, algorithm: dict[str, Any], training: Any) -> None:
    """Methods that share the step, with and without compiled ones, of unequal devices and two
    trials."""
    found = []
    for spent_s in (-float("inf"), float("inf")):
        any_bits.spent_s = spent_s
        found.append(run_rounds(algorithm, training, model={"name": "mlp", "hidden": [12]}))
    assert_agree(*found)


@pytest.mark.parametrize(
    "model",
    [
        {"name": "mlp", "hidden": [12], "dropout": 0.2},
        {"name": "mlp", "hidden": [12, 9], "activation": "leaky_relu"},
        {"name": "softmax_regression"},
    ],
    ids=["dropout", "leaky", "softmax"],
)
def test_models_agree(any_bits: Any, model: dict[str, Any]) -> None:
    """Models with and without compiled steps, in a run."""
    found = []
    for spent_s in (-float("inf"), float("inf")):
        any_bits.spent_s = spent_s
        training = {"local_steps": 3, "batch_size": 8}
        found.append(run_rounds({"name": "fedavg"}, training, model))
    assert_agree(*found)


def run_rounds(algorithm: Any, training: Any, model: Any) -> list[torch.Tensor]:
    """Return the server's state and the mean loss after three rounds of two trials."""
    scenario = {
        "name": "passes",
        "data": {"name": "digits", "partition": {"name": "dirichlet", "alpha": 0.3}},
        "model": model,
        "algorithm": algorithm,
        "transport": "ideal",
        "devices": {"count": 6, "participants": 4},
        "training": {"rounds": 3, **training},
        "engine": {"device": "cpu", "threads": 1},
    }
    engine = Engine(assemble(expand(load_scenario(scenario)), range(2)))
    for t in range(3):
        engine.run_round(t)
    return [*engine.server.values(), engine.means.take()["train_loss"]]


def test_derived_classes_have_their_own_steps() -> None:
    """A model with a step of its own takes it, and a loss with another gradient is not compiled."""

    class Halving(LayeredModel):
        def take_sgd_step_(self, params: Tensors, batch: Batch, step: Tensor) -> Tensor:
            for one in params.values():
                one.mul_(0.5)
            return torch.ones_like(step)

    class Smoothed(CrossEntropy):
        def compute_gradient_(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
            raise NotImplementedError

    assert CrossEntropy.is_class_entropy
    assert not Smoothed.is_class_entropy
    model = Halving(number_layers([(3, 2)]))
    params = {name: torch.ones(1, *shape) for name, shape in model.shapes.items()}
    run = model.start_sgd(params, torch.ones(1))
    run.take_step_(make_batches(model, 1, (4,))[0])
    assert float(run.sum_losses()) == 1.0
    assert all((one == 0.5).all() for one in params.values())
