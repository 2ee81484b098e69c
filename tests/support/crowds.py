"""A data set of small samples, as many as a large population needs, and scenarios over it."""

from __future__ import annotations

from typing import Any

import numpy as np

from otafl.data import DataSet
from otafl.scenario import Point, expand, load_scenario

ROUNDS, PARTICIPANTS = 3, 20


def make_dataset(samples: int) -> DataSet:
    """Four numbers a sample, of which the largest is the class."""
    draw = np.random.default_rng(0)
    x, test = (draw.standard_normal((n, 4), dtype=np.float32) for n in (samples, 50))
    return DataSet(x, x.argmax(1), test, test.argmax(1), classes=4)


def make_points(devices: int, /, **keys: Any) -> list[Point]:
    """A sample a device, of whom 20 take part in each of three rounds."""
    tree = {
        "name": "crowd",
        "data": {"name": "support.crowds:make_dataset", "samples": devices, "partition": "iid"},
        "model": {"name": "mlp", "hidden": [4]},
        "devices": {"count": devices, "participants": PARTICIPANTS},
        "training": {"rounds": ROUNDS, "local_steps": 2, "batch_size": 1, "eval_every": 1},
        "engine": {"device": "cpu"},
    }
    return expand(load_scenario(tree | keys))
