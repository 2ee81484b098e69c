"""Define the contract of levels: which of a method's model sizes each device trains in a round.

Its level is the place of the size, 0 the largest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from otafl.core import registry, settings
from otafl.core.choices import Choice
from otafl.core.contracts import ChannelState, Cohort, Submodel, Workload
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import declare_purpose
from otafl.devices.hardware import Hardware
from otafl.selection.base import SelectionSetup

DRAWS = declare_purpose("levels", __name__)

SECTION = "devices.capacity_levels"

Weights = tuple[Annotated[float, Field(ge=0)], ...] | None

Shares = Annotated[
    Weights,
    Field(
        description="share of the devices on each level, the largest model first, as weights; all "
        "levels alike if not given"
    ),
]


@dataclass(frozen=True)
class SubmodelSetup:
    """Hold what every assignment is built from. submodels: the method's levels. hardware: [S, K].
    load: of the devices' local work in a round, [S, K]. link: as selections have it."""

    submodels: tuple[Submodel, ...]
    hardware: Hardware
    load: Workload
    link: SelectionSetup


class SubmodelAssignment:
    """Assign levels. An assignment says `get_fixed_levels` or `assign_levels`.

    Parameters
    ----------
    settings : the assignment's, of its class `Settings`.
    setup : what every assignment is built from.

    Raises
    ------
    UserError
        Where a device cannot have any of the levels.
    """

    class Settings(settings.Settings):
        """Describe the section `devices.capacity_levels` of a scenario."""

        example: ClassVar = {"algorithm.name": "heterofl"}

        def count_values(self, levels: int) -> dict[str, int]:
            """Return how many values each key that lists some must have, for so many levels."""
            return {"shares": levels}

        def check(self, scenario: Any) -> Iterable[Problem]:
            algorithm = scenario.algorithm
            try:
                sizes = getattr(algorithm.values, "levels", None)
            except (UserError, ValidationError):
                return  # which the method's own section tells
            if sizes is None:
                if self != Choice("capacity_levels").make_default():
                    yield _describe_single_size(algorithm.name)
                return
            for key, count in self.count_values(len(sizes)).items():
                values = getattr(self, key, None)
                if values is None:
                    continue
                if len(values) != count:
                    text = (
                        f"got {len(values)} values, and there {'is' if count == 1 else 'are'} "
                        f"{count} to give; algorithm '{algorithm.name}' has {len(sizes)} levels"
                    )
                    yield make_problem(text, f"{SECTION}.{key}", "algorithm.levels")
                elif key == "shares" and sum(values) <= 0:
                    text = "all are 0; at least one above 0 would do"
                    yield make_problem(text, f"{SECTION}.{key}")

    def __init__(self, settings: Any, setup: SubmodelSetup) -> None:
        self.settings, self.setup = settings, setup
        level = self.get_fixed_levels()
        if level is not None:
            rows = np.broadcast_to(level, setup.hardware.flops_per_s.shape).flatten()
            self._table = torch.from_numpy(rows).to(setup.link.streams.device)

    def get_fixed_levels(self) -> np.ndarray | None:
        """Return the level of each device, [K] or [S, K] int64, where it is one for the whole
        run."""
        return None

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        """Return the level of each row in a round with this channel, [N] int64: by default the
        lasting one."""
        return self._table[cohort.flat_index]


def compute_share_bounds(shares: Weights, count: int) -> np.ndarray:
    """Return where one of `count` shares of (0, 1) ends and the next begins, [count - 1]; None for
    equal ones."""
    weights = np.ones(count) if shares is None else np.asarray(shares, float)
    return np.cumsum(weights / weights.sum())[:-1]


def assign_by_rank(place: np.ndarray, shares: Weights, count: int) -> np.ndarray:
    """Return which of the shares the device at each place [..., K] of K belongs to."""
    return np.searchsorted(
        compute_share_bounds(shares, count), (place + 0.5) / place.shape[-1], side="right"
    )


def _describe_single_size(algorithm: str) -> Problem:
    """Say that a method has models of one size, and which have several."""
    fitting = [
        name
        for name in registry.list_names("algorithm")
        if "levels" in registry.load_settings_class("algorithm", name).model_fields
    ]
    text = (
        f"algorithm '{algorithm}' has models of one size; leave it out, or use one of the "
        f"algorithms {', '.join(fitting)}"
    )
    return make_problem(text, SECTION, "algorithm")
