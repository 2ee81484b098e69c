"""A lower bound of how long a run computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from otafl import models
from otafl.core.contracts import LocalLoad
from otafl.data.shape import DataShape
from otafl.engine.assembly import method_of
from otafl.scenario import Point

MOST_FLOPS_PER_S = 1e11
"""No thread does more: a run takes at least its operations by this many."""


def bound_seconds(points: Sequence[Point], shape: DataShape) -> float:
    """Return how long points of one method, model and load compute at least, in seconds of all
    threads: their local work, at the speed that no thread exceeds."""
    scenario = points[0].scenario
    training, devices = scenario.training, scenario.devices
    model = models.build(scenario.model, shape.input_shape, shape.classes)
    held = np.full((1, 1), shape.samples / devices.count)
    load = LocalLoad(training.local_steps, training.batch_size, held)
    participants = min(devices.participants or devices.count, devices.count)
    flops = float(np.sum(method_of(scenario, model).flops(load))) * participants
    rounds = sum(point.scenario.training.rounds * point.scenario.trials for point in points)
    threads = scenario.engine.threads or torch.get_num_threads()
    return flops * rounds / (MOST_FLOPS_PER_S * threads)
