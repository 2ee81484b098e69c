"""Record of a stack, which the engine returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from otafl.results.models import TrainedModels


@dataclass(frozen=True)
class Record:
    """Measurements of the engine for the points of one stack.

    rounds: [R] rounds at which records were taken. variables: name of `VARIABLES` -> float [points,
    trials, R], [points, trials, R, devices] or [points, trials], as its dims say. complete: whether
    every round was run. link: name of `otafl.results.dataset.LINK_DIMS`, with "/<group>" where
    there are several -> [points, trials, rounds, ...], of every round from the first, or None.
    models: of all points and trials at the end, with `output.save_models`.
    """

    rounds: list[int]
    variables: dict[str, np.ndarray]
    complete: bool = True
    link: dict[str, np.ndarray] | None = None
    models: TrainedModels | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return plain data, see `otafl.results.plain_data`."""
        models = None if self.models is None else self.models.state_dict()
        return {**vars(self), "models": models}

    @staticmethod
    def from_state_dict(state: Mapping[str, Any], shape: tuple[int, int]) -> Record:
        """Return the record, of the given points and trials, from the output of `state_dict`.

        Raises TypeError, ValueError or AttributeError for anything else.
        """
        from otafl.results.models import TrainedModels  # imports torch

        models = (
            None if state["models"] is None else TrainedModels.from_state_dict(**state["models"])
        )
        record = Record(**{**state, "models": models})
        for name, values in (record.variables | (record.link or {})).items():
            if values.shape[:2] != shape:
                raise ValueError(f"{name} has shape {values.shape}, for {shape} points and trials")
        return record
