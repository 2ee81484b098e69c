"""The compiled pass of dense layers: a looped twin, tensor operations, and who takes it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import Rounds

from otafl.algorithms import parameters
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.data.device_splits import pack
from otafl.data.training_data import TrainingData
from otafl.losses.squared import Squared
from otafl.models import mlp as choosing
from otafl.models.base import Model, unflatten
from otafl.models.cnn import Cnn
from otafl.models.mlp import Mlp, choose_kernel
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact

INPUTS, CLASSES, SAMPLES = 11, 5, 90
EQUAL = [[20, 20, 20, 20], [15, 15, 15, 15]]
UNEQUAL = [[20, 3, 7, 12], [1, 30, 5, 2]]
CASES = {
    "one device of one sample": ([[1]], 1, 1, None),
    "many devices": (EQUAL, 6, 3, None),
    "all samples, unequally many": (UNEQUAL, 30, 2, None),
    "unequal shares of a minibatch": (UNEQUAL, 8, 4, None),
    "epochs": ([[10, 14], [15, 9]], 8, 1, 3),
    "epochs of whole minibatches": ([[10, 10], [10, 10]], 5, 1, 2),
}
"""Samples of each device of each trial, of a minibatch, local steps, and epochs in their place."""


HIDDEN: dict[str, dict[str, Any]] = {
    "softmax regression": {},
    "a hidden layer": {"hidden": (6,)},
    "odd and wide layers": {"hidden": (7, 13), "activation": "leaky_relu"},
}


def make_model(classes: int = CLASSES, inputs: int = INPUTS, **settings: Any) -> Model:
    if settings:
        return Mlp(Mlp.Settings(**settings), (inputs,), classes)
    return SoftmaxRegression(SoftmaxRegression.Settings(), (inputs,), classes)


def make_cohort(sizes: list[list[int]]) -> c.Cohort:
    pair = torch.arange(sum(map(len, sizes)))
    devices = len(sizes[0])
    return c.Cohort.create(
        pair // devices, pair % devices, torch.ones(len(pair)), (devices,) * len(sizes), devices
    )


def make_data(sizes: list[list[int]], batch: int, steps: int, **others: Any) -> TrainingData:
    random = np.random.default_rng(0)
    parts = [np.split(random.permutation(SAMPLES), np.cumsum(row))[:-1] for row in sizes]
    index, count = (torch.from_numpy(one) for one in pack(parts))
    x = torch.from_numpy(random.standard_normal((SAMPLES, INPUTS), dtype=np.float32))
    y = torch.from_numpy(random.integers(0, CLASSES, SAMPLES))
    streams = Streams([4] * len(sizes), range(len(sizes)))
    return TrainingData(x, y, index, count, CLASSES, streams, batch, steps, **others)


def train_by_loops(
    start: np.ndarray,
    widths: list[int],
    slope: float,
    batches: list[c.Batch],
    row: int,
    rate: float,
) -> tuple[np.ndarray, float]:
    """Return the increment and the mean loss of a row, sample by sample in double precision."""
    now, losses = start.astype(float), []
    blocks, at = [], 0
    for before, after in itertools.pairwise(widths):
        weight = now[at : at + before * after].reshape(before, after)
        at += before * after + after
        blocks.append((weight, now[at - after : at]))
    for batch in batches:
        size, loss = batch.y.shape[1], 0.0
        grads = [(np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in blocks]
        for b in range(size):
            share = 1.0 / size if batch.weight is None else float(batch.weight[row, b])
            label, inputs = int(batch.y[row, b]), [batch.x[row, b].double().numpy()]
            for weight, bias in blocks:
                z = inputs[-1] @ weight + bias
                inputs.append(np.where(z > 0, z, slope * z))
            chance = np.exp(z - z.max())
            chance /= chance.sum()
            loss -= share * math.log(chance[label])
            g = share * (chance - np.eye(len(chance))[label])
            for k in range(len(blocks) - 1, -1, -1):
                grads[k][0][:] += np.outer(inputs[k], g)
                grads[k][1][:] += g
                g = (blocks[k][0] @ g) * np.where(inputs[k] > 0, 1.0, slope)
        for own, steps in zip(blocks, grads, strict=True):
            for block, by in zip(own, steps, strict=True):
                block -= rate * by
        losses.append(loss)
    return now - start, float(np.mean(losses))


@pytest.mark.twin
@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("layers", HIDDEN)
@pytest.mark.parametrize("case", CASES)
def test_looped_twin_and_tensor_operations(
    case: str, layers: str, reserves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, batch_size, steps, epochs = CASES[case]
    data, cohort = make_data(sizes, batch_size, steps, epochs=epochs), make_cohort(sizes)
    model, slope = make_model(**HIDDEN[layers]), 0.1 * ("activation" in HIDDEN[layers])
    widths = [INPUTS, *HIDDEN[layers].get("hidden", ()), CLASSES]
    n, width = cohort.num_rows, model.num_params
    start = torch.randn(len(sizes), width, generator=torch.Generator().manual_seed(1))
    rate, given = torch.linspace(0.05, 0.4, n), c.Broadcast({c.MODEL: start})
    received = given.view_rows(cohort, 0, n)
    room = torch.full((n, width), torch.nan)
    reserve_fn = (lambda like: room) if reserves else None

    def train() -> tuple[torch.Tensor, torch.Tensor]:
        work = data.select_cohort(2, cohort)
        context = c.LocalContext(cohort, {}, data.streams, 2, work, reserve_fn=reserve_fn)
        with torch.inference_mode():
            (group,), loss = parameters.train_increment(model, received, rate, context)
        return group.tensors[c.MODEL].clone(), loss

    with monkeypatch.context() as patch:
        patch.setattr(parameters, "run_sgd_", None)  # nothing else trains
        increment, loss = train()
    assert torch.equal(room, increment) is reserves
    work = data.select_cohort(2, cohort)
    batches = [work.draw_batch(step) for step in range(work.steps)]
    for row in range(n):
        old = received.tensors[c.MODEL][row].numpy()
        wanted, mean = train_by_loops(old, widths, slope, batches, row, float(rate[row]))
        np.testing.assert_allclose(increment[row], wanted, rtol=1e-5, atol=2e-6)
        assert float(loss[row]) == pytest.approx(mean, rel=1e-5)
    monkeypatch.setattr(parameters, "choose_kernel", lambda *given: None)
    for ours, other in zip((increment, loss), train(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("classes", [2, 3, 32])
def test_classes_and_inputs_of_any_number(classes: int) -> None:
    """One step of all-zero weights moves them by the labels' and the classes' shares, exactly."""
    model, size, inputs = make_model(classes, 3), 7, 3
    x = torch.arange(size * inputs).view(size, inputs) / 10.0
    samples = c.Samples(x, torch.arange(size) % classes, torch.arange(size)[None, None], None)
    train = choose_kernel(model, torch.zeros(1, model.num_params), make_work())
    assert train is not None
    increment = torch.empty(1, model.num_params)
    received, rate = torch.zeros(1, model.num_params), torch.tensor([0.7])
    loss = train(samples, received, rate, increment)
    moved = unflatten(increment, model.shapes)
    toward = torch.nn.functional.one_hot(samples.y, classes) - 1.0 / classes
    torch.testing.assert_close(moved["weight0"][0], 0.7 / size * x.T @ toward)
    torch.testing.assert_close(moved["bias0"][0], 0.7 / size * toward.sum(0))
    assert loss.item() == pytest.approx(math.log(classes), rel=1e-6)


def make_work(batch: int = 4, steps: int = 2, **others: Any) -> Any:
    return make_data(EQUAL, batch, steps, **others).select_cohort(0, make_cohort(EQUAL))


class OwnRegression(SoftmaxRegression):
    """May train otherwise."""


def test_other_models_types_and_sizes_take_tensor_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, work = make_model(), make_work()
    given = torch.zeros(8, model.num_params)
    assert choose_kernel(model, given, work) is not None
    squared, own = make_model(), OwnRegression(SoftmaxRegression.Settings(), (INPUTS,), CLASSES)
    squared.loss = Squared()
    convolutions = Cnn(Cnn.Settings(channels=(2,), kernel=3, hidden=()), (5, 5), CLASSES)
    for other in (squared, own, make_model(hidden=(4,), dropout=0.5), convolutions):
        assert choose_kernel(other, given, work) is None
    assert choose_kernel(model, given.double(), work) is None
    assert choose_kernel(model, given.to("meta"), work) is None
    limits = {"MAX_WEIGHTS": INPUTS * CLASSES, "MAX_SAMPLES": 8 * 2 * 4}
    for name, largest in limits.items():
        with monkeypatch.context() as patch:
            patch.setattr(choosing, name, largest)
            assert choose_kernel(model, given, work) is not None
            patch.setattr(choosing, name, largest - 1)
            assert choose_kernel(model, given, work) is None
    perceptron = make_model(hidden=(4,))
    for largest, is_compiled in ((4 * CLASSES, True), (4 * CLASSES - 1, False)):
        monkeypatch.setattr(choosing, "MAX_LATER_WEIGHTS", largest)
        assert (choose_kernel(perceptron, given, work) is not None) is is_compiled
    monkeypatch.setattr(choosing, "MAX_PRODUCTS", 8 * 2 * 4 * INPUTS * CLASSES - 1)
    for threads, is_compiled in ((2, True), (3, False)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert (choose_kernel(model, given, work) is not None) is is_compiled
    monkeypatch.setattr(choosing, "load_loops", lambda *name: None)  # without Numba
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert choose_kernel(model, given, work) is None


@pytest.mark.parametrize(
    ("name", "settings"),
    [("fedprox", {}), ("fedavg", {"sends": "model"}), ("scaffold", {}), ("ditto", {})],
)
def test_other_local_work_takes_tensor_operations(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A penalty, a correction, models of their own: none of it is plain SGD of an increment."""
    rounds = Rounds(name, make_model(3, 6), settings, dtype=torch.float32)
    monkeypatch.setattr(parameters, "choose_kernel", None)  # raises where it is called
    assert rounds.run_round(0).loss.isfinite().all()


@pytest.mark.parametrize(("rounds_ahead", "epochs"), [(1, None), (64, None), (1, 3)])
def test_listed_samples_are_those_of_minibatches(rounds_ahead: int, epochs: int | None) -> None:
    sizes = [[10, 14, 9], [15, 13, 10]] if epochs else UNEQUAL  # two steps in an epoch
    data, cohort = make_data(sizes, 8, 4, epochs=epochs), make_cohort(sizes)
    data.rounds_ahead = rounds_ahead
    for rows in (cohort, cohort.slice_rows(2, 5)):
        work = data.select_cohort(5, rows)
        listed = work.list_samples()
        assert listed is not None
        assert len(listed.rows) == work.steps
        for step in range(work.steps):
            batch, weight = work.draw_batch(step), listed.weight[min(step, len(listed.weight) - 1)]
            assert torch.equal(listed.x[listed.rows[step]], batch.x)
            assert torch.equal(listed.y[listed.rows[step]], batch.y)
            whole = torch.full_like(weight, 1 / 8) if batch.weight is None else batch.weight
            assert torch.equal(weight, whole)


def test_changed_minibatches_are_not_listed() -> None:
    work, cohort = make_work(), make_cohort([[12, 12]])
    assert work.list_samples() is not None
    assert work.flip_labels(torch.ones(8, dtype=torch.bool)).list_samples() is None
    data = make_data([[12, 12]], 4, 2, augment=lambda x, *others: x)
    assert data.select_cohort(0, cohort).list_samples() is None
    data = make_data([[12, 12]], 4, 2)
    assert data.select_cohort(0, cohort, has_keys=True).list_samples() is None
    data.y = data.y[:, None].float()  # values, no classes
    assert data.select_cohort(0, cohort).list_samples() is None
