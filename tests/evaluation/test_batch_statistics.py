"""Statistics of batch normalisation for a test, against torch's own and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.core.contracts import Tensors, View
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.evaluation import scoring
from otafl.evaluation.scoring import BatchStatistics

pytestmark = pytest.mark.exact

DOUBLE = torch.float64


def local_data(held: list[list[list[int]]], x: Tensor) -> TrainingData:
    """Of devices that hold these samples, [trial][device]."""
    longest = max(len(own) for row in held for own in row)
    index = torch.tensor([[own + [0] * (longest - len(own)) for own in row] for row in held])
    count = torch.tensor([[len(own) for own in row] for row in held])
    streams = Streams([0] * len(held), list(range(len(held))), dtype=DOUBLE)
    return TrainingData(x, torch.zeros(len(x), dtype=torch.int64), index, count, 2, streams, 1, 1)


def moments(params: Tensors, x: Tensor) -> Tensors:
    """Of a scaled input, [n, M]."""
    variance, mean = torch.var_mean(params["scale"][:, None] * x, 1)
    return {"mean": mean, "variance": variance}


def view(scale: list[float], owner: str = "trial") -> View:
    params = {"scale": torch.tensor(scale, dtype=DOUBLE)[:, None]}
    return View(params, lambda blocks, x: x, owner, moments_fn=moments)  # type: ignore[arg-type]


def torch_statistics(batches: list[Tensor]) -> tuple[Tensor, Tensor]:
    """What torch's own layer has after a pass over the batches."""
    layer = torch.nn.BatchNorm1d(batches[0].shape[1], momentum=None, dtype=DOUBLE)
    for batch in batches:
        layer(batch)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var


def close(found: View, row: int, batches: list[Tensor]) -> None:
    mean, variance = torch_statistics(batches)
    torch.testing.assert_close(found.params["mean"][row], mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.params["variance"][row], variance, rtol=1e-12, atol=1e-12)


def test_a_trial_passes_over_all_that_its_devices_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH", 3)
    x = torch.randn(12, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    data = local_data([[[4, 0, 7], [2, 9]], [[1, 3, 2], [11, 5]]], x)
    found = BatchStatistics(data, None).add_statistics(view([1.0, 2.0]))
    for row, (scale, own) in enumerate([(1.0, [0, 2, 4, 7, 9]), (2.0, [1, 2, 3, 5, 11])]):
        close(found, row, [scale * x[own[:3]], scale * x[own[3:]]])


def test_a_device_passes_over_its_own() -> None:
    x = torch.randn(9, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))
    held = [[0, 5, 8], [1, 2, 3, 4, 6]]
    found = BatchStatistics(local_data([held], x), None).add_statistics(view([1.0, 3.0], "device"))
    for row, scale in enumerate([1.0, 3.0]):
        close(found, row, [scale * x[held[row]]])


def test_so_many_samples_are_spread_over_all() -> None:
    x = torch.randn(10, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(4))
    found = BatchStatistics(local_data([[list(range(10))]], x), 4).add_statistics(view([1.0]))
    close(found, 0, [x[[0, 2, 5, 7]]])
