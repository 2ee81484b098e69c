"""What of a device's samples trains, validates and tests."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data import DataSet
from otafl.data.device_splits import (
    partition_samples,
    split_parts,
)
from otafl.data.digits import Digits
from otafl.data.partitions.base import SampleAssignment

pytestmark = pytest.mark.exact


def test_cut() -> None:
    parts = SampleAssignment.from_parts([np.arange(100, 111), np.arange(8)])
    shares = split_parts(parts, 0.25, 0.25)
    assert [one.tolist() for one in shares.train] == [[*range(100, 106)], [0, 1, 2, 3]]
    assert [one.tolist() for one in shares.validation] == [[106, 107], [4, 5]]
    assert [one.tolist() for one in shares.test] == [[108, 109, 110], [6, 7]]
    with pytest.raises(UserError, match="splits the 1 samples of device 1 into 0 for training, 0"):
        split_parts(SampleAssignment.from_parts([np.arange(4), np.arange(1)]), 0.25, 0.0)


@pytest.mark.parametrize(
    ("owner_test", "said"),
    [
        (np.array([10, 10, 12, 12]), r"no test samples of the users of device 1 \(11\)"),
        (np.array([1, 2, 3, 4]), r"no test samples of the users of device 0 \(10\)"),
        (None, "training samples have users; give owner_test too"),
    ],
)
def test_a_user_without_test_samples_is_named(owner_test: np.ndarray | None, said: str) -> None:
    x, y, owner = np.zeros((6, 2), np.float32), np.zeros(6, int), np.repeat([10, 11, 12], 2)
    data = DataSet(x, y, x[:4], y[:4], 1, owner=owner, owner_test=owner_test)
    source = Digits(own_test=True, partition="natural")
    with pytest.raises(UserError, match=f"data.own_test: .*{said}"):
        partition_samples(source, data, 3, Streams([7], (0,)))
