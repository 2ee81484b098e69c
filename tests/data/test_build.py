"""From sections of a scenario to the devices' samples.

Fails if: the test samples of a device are trained on; trials share a partition that do not share
all numbers; labels that the partition changes are not trained on.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data import Samples, build
from otafl.data.device_splits import ClientSamples
from otafl.data.digits import Digits

pytestmark = pytest.mark.exact

TRAINING = SimpleNamespace(batch_size=4, local_steps=2, local_epochs=None)
DEVICES = 4
SKEWED = {"name": "label_skew"}


def built(trials: tuple[int, ...] = (0, 1, 2), **keys: Any) -> Samples:
    source = Digits(**{"train_samples": 300, "partition": "dirichlet", **keys})
    streams = Streams([7] * len(trials), trials)
    return build(source, DEVICES, TRAINING, streams)


def held(samples: Samples, cell: int) -> set[int]:
    """The training samples of a device."""
    data = samples.training_data
    return set(data.index[cell, : data.count[cell]].tolist())


def test_no_sample_is_both_trained_on_and_tested() -> None:
    samples = built(test="per_device", validation=0.2)
    own, validation = samples.client_test, samples.client_validation
    assert own is not None
    assert validation is not None
    for cell in range(3 * DEVICES):
        trained = held(samples, cell)
        tested = set(own.index[cell, : own.count[cell]].tolist())
        validated = set(validation.index[cell, : validation.count[cell]].tolist())
        assert not trained & tested
        assert not validated & (trained | tested)
        whole = len(trained) + len(validated) + len(tested)
        assert len(trained) + len(validated) == int(0.75 * whole)
        assert len(validated) == round(0.2 * int(0.75 * whole))


def test_own_classes_of_the_official_test_set() -> None:
    samples = built(own_test=True, partition=SKEWED, train_samples=None)
    assert samples.client_test is not None
    have = samples.training_data.count_classes(torch.arange(3 * DEVICES)) > 0
    assert torch.equal(samples.client_test.count_classes() > 0, have)
    in_test = np.bincount(samples.data.y_test, minlength=10)
    expected = torch.from_numpy(in_test) * have
    assert torch.equal(samples.client_test.count_classes(), expected)


def test_a_class_without_test_samples() -> None:
    with pytest.raises(UserError, match=r"no validation samples of .* device 0 \(6, 9\)"):
        built(own_test=True, partition=SKEWED, train_samples=12, validation=0.1)


def test_samples_of_all_devices_of_a_trial() -> None:
    y = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1, 2])
    parts = [[np.array([0]), np.array([1, 2, 3])], [np.array([4, 5]), np.array([6, 7, 8])]]
    own = ClientSamples.from_parts(torch.zeros(9, 2), y, parts, 3)
    whole = own.pool_devices()
    assert whole.count.tolist() == [4, 4, 5, 5]
    assert sorted(whole.index[3].tolist()) == [4, 5, 6, 7, 8]
