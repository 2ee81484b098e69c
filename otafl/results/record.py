"""Hold what the engine hands over of a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Record:
    """Hold what the engine measured for the points of one stack.

    rounds: [R] rounds at which records were taken. variables: name of `VARIABLES` -> float [points,
    trials, R], [points, trials, R, devices] or [points, trials], as its dims say. complete: whether
    every round was run. link: name of `otafl.results.dataset.LINK_DIMS`, with "/<group>" where
    there are several -> [points, trials, rounds, ...], of every round from the first, or None.
    models: `otafl.results.models.Trained` of all points and trials at the end, with
    `output.save_models`.
    """

    rounds: list[int]
    variables: dict[str, np.ndarray]
    complete: bool = True
    link: dict[str, np.ndarray] | None = None
    models: Any = None
