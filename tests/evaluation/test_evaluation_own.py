"""Models evaluated on devices' own test samples.

Fails if: accuracy is the mean over devices instead of over samples; a personal model is tested on
another device's samples, or with another device's parameters; fine-tuning changes the state, uses a
minibatch of local work, or is left out; a stopped trial is not NaN.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from contract.small import engine, run

from otafl.core.contracts import View
from otafl.data import DataSet, Samples
from otafl.data.device_splits import ClientSamples
from otafl.engine.assembly import EngineParts
from otafl.evaluation.evaluation import Evaluation
from otafl.evaluation.recorder import Recorder
from otafl.evaluation.scoring import evaluate_client
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models.base import unflatten
from otafl.scenario import ScenarioError, load_scenario

pytestmark = pytest.mark.exact

PER_DEVICE = {"data": {"name": "digits", "train_samples": 300, "test": "per_device"}}


def linear_view(weights: torch.Tensor, owner: Any = "device") -> View:
    """Models y = x W, W [n, 2, 3]."""
    return View({"w": weights}, lambda blocks, x: torch.matmul(x, blocks["w"]), owner)


def evaluation(parts: EngineParts) -> Evaluation:
    return Evaluation(parts.samples, parts.scenario.training, parts.scenario.loss)


def samples() -> ClientSamples:
    """Two trials of two devices, with 1, 3, 2 and 4 of ten samples."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (10,), generator=generator)
    parts = [[np.array([0]), np.array([1, 2, 3])], [np.array([4, 5]), np.array([6, 7, 8, 9])]]
    return ClientSamples.from_parts(x, y, parts, 3)


def test_each_device_on_its_own_samples() -> None:
    own = samples()
    weights = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cells = torch.tensor([3, 0, 1])
    scores = evaluate_client(linear_view(weights), CrossEntropy(), own, cells, by_class=True)
    held = [[0], [1, 2, 3], [4, 5], [6, 7, 8, 9]]
    for row, cell in enumerate(cells.tolist()):
        z = own.x[held[cell]] @ weights[cell]
        target = own.y[held[cell]]
        loss = torch.nn.functional.cross_entropy(z, target, reduction="none")
        assert scores.right[row] == (z.argmax(-1) == target).sum()
        assert scores.count[row] == len(held[cell])
        torch.testing.assert_close(scores.loss[row], loss.sum())
        for c in range(3):
            mean = loss[target == c].mean()  # NaN without a sample
            torch.testing.assert_close(scores.class_loss[row, c], mean, equal_nan=True)


def test_a_device_guesses_among_its_own_classes() -> None:
    """With 1 and 3 samples of one and two classes, and 2 and 3 of two and three."""
    y = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1, 2])
    parts = [[np.array([0]), np.array([1, 2, 3])], [np.array([4, 5]), np.array([6, 7, 8])]]
    own = ClientSamples.from_parts(torch.zeros(9, 2), y, parts, 3)
    x = np.zeros((9, 2), np.float32)
    data, no_training = DataSet(x, y.numpy(), x[:0], y.numpy()[:0], 3), cast("Any", None)
    given = Samples(data, no_training, own, None, torch.zeros(2, 2))
    training = load_scenario({"name": "x"}).training
    found = Evaluation(given, training, CrossEntropy()).compute_constants()
    expected = {
        "own_accuracy_guess": [(1 * 1 + 3 / 2) / 4, (2 / 2 + 3 / 3) / 5],
        "majority_accuracy": [(1 + 2) / 4, (1 + 1) / 5],
        "accuracy_guess": [1 / 2, 1 / 3],
        "majority_share": [2 / 4, 2 / 5],
        "test_samples": [4, 5],
        "own_test_samples": [4, 5],
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values)


def test_results_are_pooled_over_samples() -> None:
    one = engine(PER_DEVICE)
    recorder = Recorder(one, 1, 3)
    run(one, 2)
    recorder.take_record(2, 0.0)
    taken = recorder.taken[0]
    assert one.parts.samples.client_test is not None
    count = one.parts.samples.client_test.count.view(3, -1).numpy()
    by_device = taken["device_own_test_accuracy"]
    pooled = (by_device * count).sum(1) / count.sum(1)
    np.testing.assert_allclose(taken["own_test_accuracy"], pooled)
    np.testing.assert_allclose(taken["test_accuracy"], pooled)  # the union of all
    assert (pooled != by_device.mean(1)).any()


def test_fine_tuning_is_a_step_of_sgd_and_leaves_no_trace() -> None:
    keys = PER_DEVICE | {"training.fine_tune_steps": 1, "training.fine_tune_learning_rate": 0.5}
    one = run(engine(keys | {"engine.dtype": "float64"}), 1)
    parts = one.parts
    before = {name: block.clone() for name, block in one.server.items()}
    views = parts.algorithm.build_views(one.server, one.devices.get_all())
    out = evaluation(parts).take(views, 1, np.ones(3, bool))
    assert all(torch.equal(before[name], block) for name, block in one.server.items())
    cells = torch.arange(12)
    model, trial = parts.model, cells // 4
    flat = one.server["model"][trial]
    params = {n: b.clone() for n, b in unflatten(flat, model.shapes).items()}
    batch = parts.samples.training_data.draw_test_batch(1, 0, cells)
    first = parts.samples.training_data.select_cohort(
        1, one.select_cohort(np.ones((3, 4), bool), 1)
    ).draw_batch(0)
    assert not torch.equal(batch.x, first.x)
    model.take_sgd_step_(params, batch, torch.full((12,), 0.5, dtype=torch.float64))
    assert parts.samples.client_test is not None
    scores = evaluate_client(
        View(params, model.logits, "device"), CrossEntropy(), parts.samples.client_test, cells
    )
    expected = scores.loss.view(3, 4).sum(1) / scores.count.view(3, 4).sum(1)
    np.testing.assert_allclose(out["tuned_own_test_loss"], expected, rtol=1e-10)
    assert (out["tuned_own_test_loss"] != out["own_test_loss"]).all()


def test_cross_tests_of_devices_models() -> None:
    """On the union of all devices' samples; class losses add up to the loss."""
    keys = PER_DEVICE | {"algorithm": "fedrlr", "training.cross_test": True}
    one = run(engine(keys), 2)
    views = one.parts.algorithm.build_views(one.server, one.devices.get_all())
    out = evaluation(one.parts).take({"personal": views["local"]}, 2, np.ones(3, bool))
    assert out["device_personal_test_accuracy"].shape == (3, 4)
    assert one.parts.samples.client_test is not None
    union = one.parts.samples.client_test.pool_devices()
    scores = evaluate_client(views["local"], CrossEntropy(), union, torch.arange(12), by_class=True)
    expected = (scores.right / scores.count).view(3, 4)
    np.testing.assert_allclose(out["device_personal_test_accuracy"], expected)
    total = (scores.class_loss * union.count_classes()).nansum(1)
    np.testing.assert_allclose(total, scores.loss)


def test_equal_models_of_devices_have_the_scores_of_their_own_trial() -> None:
    """Devices 0 to 2 of each of three trials have one model, and the last another."""
    parts = engine({"algorithm": "fedavg"}).parts
    shape = (2, parts.samples.data.x_test[0].size, 10)
    first, other = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    weights = torch.stack([scale * one for scale in (1, 2, 3) for one in (*[first] * 3, other)])
    view = View({"w": weights}, lambda blocks, x: torch.matmul(x.flatten(2), blocks["w"]), "device")
    out = evaluation(parts).take({"local": view}, 0, np.ones(3, bool))
    data, count = parts.samples.data, parts.scenario.training.eval_samples
    x, y = (torch.from_numpy(one[:count]) for one in (data.x_test, data.y_test))
    z = torch.matmul(x.flatten(1), weights)
    losses = torch.stack([torch.nn.functional.cross_entropy(one, y) for one in z])
    np.testing.assert_allclose(out["local_test_loss"], losses.view(3, 4).mean(1), rtol=1e-5)


def test_stopped_trials_are_nan() -> None:
    keys: dict[str, Any] = {
        "data.own_test": True,
        "algorithm": "fedrlr",
        "training.fine_tune_steps": 1,
    }
    keys |= {"training.cross_test": True, "training.class_losses": True}
    one = run(engine(keys), 1)
    views = one.parts.algorithm.build_views(one.server, one.devices.get_all())
    views = views | {"personal": views["local"]}
    whole = evaluation(one.parts).take(views, 1, np.ones(3, bool))
    some = evaluation(one.parts).take(views, 1, np.array([True, False, True]))
    assert set(some) == set(whole)
    for name, values in some.items():
        assert np.isnan(values[1]).all()
        np.testing.assert_allclose(values[[0, 2]], whole[name][[0, 2]], rtol=1e-5)


def test_what_cannot_be() -> None:
    with pytest.raises(ScenarioError, match="devices have no test samples of their own"):
        engine({"training.stop_at": {"personal_own_test_accuracy": 0.5}})
