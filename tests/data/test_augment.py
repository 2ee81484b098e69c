"""Random crops and flips against a loop over pixels, and their independence of who takes part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.core.contracts import Cohort
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data.augment import Augmentation, AugmentSettings
from otafl.data.dataset import DataSet
from otafl.data.training_data import TrainingData

pytestmark = pytest.mark.exact

SHAPE = (2, 5, 4)
BLACK = np.array([-1.0, 3.0], np.float32)[:, None, None]
STEPS, BATCH, DEVICES = 3, 4, 3


def images(shape: tuple[int, ...]) -> DataSet:
    """A data set of a black image."""
    x, y = np.zeros((1, *shape), np.float32), np.zeros(1, np.int64)
    return DataSet(x + BLACK if shape == SHAPE else x, y, x, y, 4)


def local_data(settings: AugmentSettings | None, shape: tuple[int, ...] = SHAPE) -> TrainingData:
    """Two trials of three devices with ten samples each."""
    streams = Streams([3, 3], [0, 1], dtype=torch.float64)
    x = torch.arange(60 * int(np.prod(shape)), dtype=torch.float64).view(60, *shape) + 7
    index = torch.arange(60).view(2, DEVICES, 10)
    count = torch.full((2, DEVICES), 10)
    augment = settings and Augmentation(settings, images(shape), streams)
    return TrainingData(x, torch.arange(60) % 4, index, count, 4, streams, BATCH, STEPS, augment)


def cohort(trial: list[int], device: list[int]) -> Cohort:
    weight = torch.ones(len(trial), dtype=torch.float64)
    counts = (trial.count(0), trial.count(1))
    return Cohort.create(torch.tensor(trial), torch.tensor(device), weight, counts, DEVICES)


EVERYBODY = cohort([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])


def looped(image: np.ndarray, u: np.ndarray, pad: int, flip: bool, black: np.ndarray) -> np.ndarray:
    """Pads, cuts, then flips one image [C, H, W] with the numbers u [3]."""
    channels, high, wide = image.shape
    padded = np.empty((channels, high + 2 * pad, wide + 2 * pad))
    padded[:] = np.broadcast_to(black, image.shape)[:, :1, :1]
    padded[:, pad : pad + high, pad : pad + wide] = image
    down, right = (int(one * (2 * pad + 1)) for one in u[:2])
    cut = padded[:, down : down + high, right : right + wide]
    return cut[:, :, ::-1] if flip and u[2] < 0.5 else cut


@pytest.mark.twin
@pytest.mark.parametrize(("crop", "flip"), [(0, True), (3, False), (7, True)])
def test_equals_the_loop(crop: int, flip: bool) -> None:
    plain = local_data(None).select_cohort(2, EVERYBODY)
    work = local_data(AugmentSettings(crop=crop, flip=flip)).select_cohort(2, EVERYBODY)
    streams = Streams([3, 3], [0, 1], dtype=torch.float64)
    for step in range(STEPS):
        for draw in (0, 1):
            seen, whole = work.draw_batch(step, draw), plain.draw_batch(step, draw)
            assert torch.equal(seen.y, whole.y)
            purpose = "augment" if draw == 0 else "augment/1"
            tick = torch.tensor([(2 << 32) + step])
            pair = EVERYBODY.trial, EVERYBODY.device
            u = streams.draw_device_uniform_rounds(purpose, tick, *pair, (3, BATCH))[0]
            for row in range(6):
                for b in range(BATCH):
                    image = whole.x[row, b].numpy()
                    expected = looped(image, u[row, :, b].numpy(), crop, flip, BLACK)
                    np.testing.assert_array_equal(seen.x[row, b], expected)


def test_what_is_no_image() -> None:
    with pytest.raises(UserError, match=r"data.augment: .* shape \[10\]; leave the key out"):
        Augmentation(AugmentSettings(flip=True), images((10,)), Streams([0], [0]))
