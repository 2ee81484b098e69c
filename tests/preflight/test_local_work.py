"""Local work in words, for scenarios whose numbers of samples are known before they are read."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import points

from otafl.preflight.local_work import describe_local_work

pytestmark = pytest.mark.exact

EQUAL = {"data": {"name": "digits", "train_samples": 400, "partition": "iid"}}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"training.local_steps": 10, "training.batch_size": 20},
            "local work: 10 steps = 2 epochs of 100 samples",
        ),
        (
            {"training.local_steps": 3, "training.batch_size": 30},
            "local work: 3 steps = 0.75 epochs of 100 samples",
        ),
        (
            {"training.local_epochs": 2, "training.local_steps": 1, "training.batch_size": 30},
            "local work: 2 epochs = 8 steps for 100 samples",
        ),
        (
            {"training.local_steps": 4, "training.batch_size": 25},
            "local work: 4 steps = 1 epoch of 100 samples",
        ),
        (
            {"training.local_epochs": 1, "training.local_steps": 1, "training.batch_size": 1},
            "local work: 1 epoch = 100 steps for 100 samples",
        ),
    ],
)
def test_steps_and_epochs_by_hand(keys: dict[str, Any], text: str) -> None:
    assert describe_local_work(points(EQUAL | keys)) == [text]


def test_points_that_differ_are_not_described() -> None:
    assert describe_local_work(points(EQUAL | {"sweep": {"training.local_steps": [1, 2]}})) == []
    assert len(describe_local_work(points(EQUAL | {"sweep": {"seed": [1, 2]}}))) == 1
