"""Compiled local SGD agrees with single steps, which remain where it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.marks import first_is_fast
from support.rounding import assert_agree
from torch import Tensor

from otafl.core.contracts import Batch, StepSamples
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.models import compiled_training
from otafl.models.base import Model
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import number_layers
from otafl.scenario import expand, load_scenario

pytestmark = pytest.mark.exact


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Load the pass at once, on one thread. The module is the fixture."""
    pytest.importorskip("numba")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(compiled_training._kernel, "spent_s", float("inf"))
    yield compiled_training._kernel
    torch.set_num_threads(threads)


@pytest.fixture
def any_bits(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pass serve on this processor whatever its last bits are."""
    if not kernel.get(torch.device("cpu")).is_available:
        pytest.skip("torch's library has no MKL")
    monkeypatch.setattr(compiled_training.CompiledTraining, "_keeps_bits", lambda *_: True)


class Work:
    """Local data of random samples; rows have weights if `weighted`."""

    def __init__(self, model: LayeredModel, rows: int, size: int, steps: int, weighted: bool):
        torch.manual_seed(2)
        first, last = model.layers[0].inputs, model.layers[-1].outputs
        self.steps, self.asked = steps, 0
        self.x, self.y = torch.randn(50, first), torch.randint(0, last, (50,))
        self.index = torch.randint(0, 50, (steps, rows, size))
        self.weight = torch.rand(rows, size) if weighted else None

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        index = self.index[step]
        return Batch(self.x[index], self.y[index], self.weight)

    lists_steps = True

    def draw_all_steps(self) -> StepSamples:
        self.asked += 1
        return StepSamples(self.x, self.y, self.index, self.weight)


def make_received(model: LayeredModel, rows: int) -> Tensor:
    torch.manual_seed(1)
    return 0.3 * torch.randn(rows, model.num_params)


def train_both(model: LayeredModel, received: Tensor, step: Tensor, work: Any) -> list[Any]:
    """Return the outcome of the pass, or None, and that of single steps."""
    with torch.inference_mode():
        assert model._training.is_suitable(received, step, work)
        return [
            model._training.train(received, step, work),
            Model.train_increment(model, received, step, work),
        ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "size"), [(1, 10), (3, 20), (3, 70)])
@pytest.mark.parametrize(
    "sides", [(300, 10), (64, 3), (30, 100, 10), (26, 40, 33, 5), (8, 64, 128)]
)
@pytest.mark.usefixtures("any_bits")
def test_increments_agree_with_those_of_single_steps(
    sides: tuple[int, ...], rows: int, size: int, slope: float, weighted: bool
) -> None:
    """Wide and narrow layers, of rows with their own parameters and with shared ones."""
    model = LayeredModel(number_layers(list(pairwise(sides))), slope)
    work, step = Work(model, rows, size, 5, weighted), torch.linspace(0.01, 0.02, rows)
    own = make_received(model, rows)
    for received in (own, own[:1].expand(rows, -1)):
        before = received.clone()
        got, expected = train_both(model, received, step, work)
        assert_agree(got, expected)
        assert torch.equal(received, before)
        assert got[0].isfinite().all()


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_refused_pass_leaves_the_work_to_single_steps(
    kernel: Any, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """Increments agree where it is refused, and where this processor decides."""
    if is_refused:
        monkeypatch.setattr(compiled_training.CompiledTraining, "_keeps_bits", lambda *_: False)
    model, step = LayeredModel(number_layers([(64, 10)])), torch.full((3,), 0.1)
    work, received = Work(model, 3, 20, 5, False), make_received(model, 3)
    with torch.inference_mode():
        found = [model.train_increment(received, step, work) for _ in range(2)]
        expected = Model.train_increment(model, received, step, work)
    assert_agree(found, [expected] * 2)
    if is_refused:
        assert work.asked == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.usefixtures("any_bits")
def test_parameters_without_bounds(value: float) -> None:
    """Rows that diverged have the numbers of tensor operations, and leave the others alone."""
    model, step = LayeredModel(number_layers([(64, 10)])), torch.full((3,), 0.1)
    received = make_received(model, 3)
    received[1, 4] = value
    got, expected = train_both(model, received, step, Work(model, 3, 20, 2, False))
    assert_agree(got, expected)
    assert all(one[[0, 2]].isfinite().all() for one in got)


@pytest.mark.parametrize("case", ["bits", "library", "values", "samples"])
def test_what_the_pass_refuses(kernel: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Other bits, a torch without the functions, and labels that are no classes, each once."""
    model, step = LayeredModel(number_layers([(64, 10)])), torch.full((2,), 0.1)
    size = 256 if case == "samples" else 20
    work: Any = Work(model, 2, size, 1, False)
    received = make_received(model, 2)
    with torch.inference_mode():
        module = kernel.get(step.device)
        if case == "bits":
            plain = model._training._train_plainly
            change = lambda *given: [1.000001 * one for one in plain(*given)]  # noqa: E731
            monkeypatch.setattr(model._training, "_train_plainly", change)
        if case == "library":
            monkeypatch.setattr(module, "is_available", False)
        if case == "values":
            work.y = work.y.float()
        assert model._training.train(received, step, work) is None
        assert not model._training.is_suitable(received, step, work)
    assert work.asked == 1
    assert model._training._same_bits == {(2, size): False}


class Wrapper:
    """Local data of a user that changes minibatches, and passes on all else."""

    def __init__(self, data: Work) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


@pytest.mark.parametrize("sides", [(8, 600), (30, 1, 9)])
def test_layers_whose_sums_have_another_order_are_left_to_steps(
    kernel: Any, sides: tuple[int, ...]
) -> None:
    """Two steps of a sample can have the same bits by luck."""
    model, step = LayeredModel(number_layers(list(pairwise(sides)))), torch.ones(2)
    with torch.inference_mode():
        work: Any = Work(model, 2, 1, 1, False)
        assert not model._training.is_suitable(make_received(model, 2), step, work)


@pytest.mark.parametrize(
    "case", ["threads", "gradients", "double", "strides", "wrapper", "too many"]
)
def test_unsuitable_parameters_are_left_to_steps(kernel: Any, case: str) -> None:
    model, step = LayeredModel(number_layers([(64, 10)])), torch.ones(2)
    received = make_received(model, 2)
    if case == "double":
        received, step = received.double(), step.double()
    if case == "threads":
        torch.set_num_threads(2)
    if case == "strides":
        received = torch.cat([received, received], 1)[:, : model.num_params]
    work: Any = Work(model, 2, 20, 1, False)
    if case == "wrapper":
        work = Wrapper(work)
    if case == "too many":
        work.lists_steps = False
    with torch.inference_mode(case != "gradients"):
        assert not model._training.is_suitable(received, step, work)


CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "softmax": {"model": "softmax_regression"},
    "fedbuff": {"algorithm": "fedbuff"},
    "all devices": {"devices": {"count": 6}},
    "one trial": {"trials": 1},
    "chunks": {"engine": {"device": "cpu", "threads": 1, "chunk_mb": 0.01}},
    "sends models": {"algorithm": {"name": "fedavg", "sends": "model"}},
    "short minibatches": {"training": {"rounds": 3, "local_steps": 2, "batch_size": 200}},
    "epochs": {"training": {"rounds": 3, "local_epochs": 1, "batch_size": 20}},
    "dropout": {"model": {"name": "mlp", "hidden": [12], "dropout": 0.2}},
    "false labels": {"faults": {"attack": "label_flip", "byzantine": 3}},
    "augmentation": {"data": {"name": "digits", "augment": {"flip": True}}},
    "convolutions": {"model": {"name": "cnn", "channels": [2, 3], "kernel": 3, "hidden": [8]}},
}
SERVED = {"fedavg", "softmax", "fedbuff", "all devices", "one trial", "chunks", "short minibatches"}


@pytest.mark.usefixtures("any_bits")
@pytest.mark.parametrize("case", first_is_fast(list(CASES)))
def test_runs_agree(kernel: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Runs with and without the pass agree, and it serves those that it can."""
    found, calls = [], []
    train = compiled_training.CompiledTraining._train

    def note(self: Any, *given: Any) -> Any:
        calls.append(given)
        return train(self, *given)

    monkeypatch.setattr(compiled_training.CompiledTraining, "_train", note)
    for spent_s in (-float("inf"), float("inf")):
        kernel.spent_s = spent_s
        assert not calls
        found.append(run_rounds(CASES[case]))
    assert_agree(*found)
    assert bool(calls) is (case in SERVED)


@pytest.mark.usefixtures("any_bits")
def test_chunks_write_increments_to_their_place() -> None:
    """A payload of chunks, with the pass, is that of all rows at once."""
    assert_agree(*(run_rounds(CASES[case]) for case in ("chunks", "fedavg")))


@pytest.mark.usefixtures("any_bits")
def test_models_with_steps_of_their_own_take_them() -> None:
    """A derived class that changes the start of steps is not bypassed."""

    class Slower(LayeredModel):
        def start_sgd(self, params: Any, step: Tensor) -> Any:
            return super().start_sgd(params, 0.5 * step)

    layers, step = number_layers([(64, 10)]), torch.full((2,), 0.1)
    found = []
    with torch.inference_mode():
        for model, size in ((Slower(layers), step), (LayeredModel(layers), 0.5 * step)):
            work: Any = Work(model, 2, 20, 1, False)
            found.append(model.train_increment(make_received(model, 2), size, work))
    assert_agree(*found)


def run_rounds(keys: dict[str, Any]) -> list[Tensor]:
    """Return the server's state and the mean loss after three rounds."""
    scenario = {
        "name": "passes",
        "data": {"name": "digits", "partition": {"name": "dirichlet", "alpha": 0.3}},
        "model": {"name": "mlp", "hidden": [12]},
        "algorithm": "fedavg",
        "transport": "ideal",
        "trials": 2,
        "devices": {"count": 6, "participants": 4},
        "training": {"rounds": 3, "local_steps": 3, "batch_size": 20},
        "engine": {"device": "cpu", "threads": 1},
        **keys,
    }
    engine = Engine(assemble(expand(load_scenario(scenario)), range(scenario["trials"])))
    for t in range(3):
        engine.run_round(t)
    return [*engine.server.values(), engine.means.take()["train_loss"]]
