"""A lower bound on the computing time of a run."""

from __future__ import annotations

import numpy as np
import torch

from otafl.core.contracts import Workload
from otafl.data.loading import DataShape
from otafl.engine.assembly import build_algorithm
from otafl.models.base import Model
from otafl.running.memory import count_participants
from otafl.scenario import Scenario

MAX_FLOPS_PER_S = 1e11
"""No thread does more: a run takes at least its operations by this many."""


def bound_seconds(scenario: Scenario, shape: DataShape, model: Model) -> float:
    """Return a lower bound on the computing time of a trial, in seconds of all threads.

    It is the time of the local work, at a speed that no thread exceeds.
    """
    training = scenario.training
    held = np.full((1, 1), shape.samples / scenario.devices.count)
    load = Workload(training.local_steps, training.batch_size, held, training.local_epochs)
    flops = float(np.sum(build_algorithm(scenario, model).count_flops(load))) * count_participants(
        scenario
    )
    threads = scenario.engine.threads or torch.get_num_threads()
    return flops * training.rounds / (MAX_FLOPS_PER_S * threads)
