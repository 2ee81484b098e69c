"""Contract of an assignment of capacity levels, the submodel of each device in a round.

A level is the position of the submodel in the list from the largest, 0.
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
"""Weights of shares, or None for equal shares."""

Shares = Annotated[
    Weights,
    Field(
        description="share of the devices on each level, from the largest model, as weights; equal "
        "shares if not given"
    ),
]


@dataclass(frozen=True)
class SubmodelSetup:
    """Arguments of every assignment.

    Parameters
    ----------
    submodels : tuple of Submodel
        Submodels of the method, from the largest.
    hardware : Hardware [S, K]
        Speed and memory of the devices.
    load : Workload [S, K]
        Local work of the devices in a round.
    link : SelectionSetup
        Knowledge of the devices' channels.
    """

    submodels: tuple[Submodel, ...]
    hardware: Hardware
    load: Workload
    link: SelectionSetup


class SubmodelAssignment:
    """Assignment of capacity levels; it overrides `get_fixed_levels` or `assign_levels`.

    Parameters
    ----------
    settings : Settings
        Settings of the assignment, of its class `Settings`.
    setup : SubmodelSetup
        Submodels, hardware, workload and channels.

    Raises
    ------
    UserError
        If a device cannot have any of the levels.
    """

    class Settings(settings.Settings):
        """Settings of the section `devices.capacity_levels` of a scenario."""

        example: ClassVar = {"algorithm.name": "heterofl"}

        def count_values(self, levels: int) -> dict[str, int]:
            """Return the number of values of each key with a list, for a number of levels."""
            return {"shares": levels}

        def check(self, scenario: Any) -> Iterable[Problem]:
            algorithm = scenario.algorithm
            try:
                sizes = getattr(algorithm.values, "levels", None)
            except (UserError, ValidationError):
                return  # the section of the method reports it
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
                        f"got {len(values)} values; expected {count} (algorithm "
                        f"'{algorithm.name}' has {len(sizes)} levels)"
                    )
                    yield make_problem(text, f"{SECTION}.{key}", "algorithm.levels")
                elif key == "shares" and sum(values) <= 0:
                    text = "all are 0; expected at least one above 0"
                    yield make_problem(text, f"{SECTION}.{key}")

    def __init__(self, settings: Any, setup: SubmodelSetup) -> None:
        self.settings, self.setup = settings, setup
        level = self.get_fixed_levels()
        if level is not None:
            rows = np.broadcast_to(level, setup.hardware.flops_per_s.shape).flatten()
            self._table = torch.from_numpy(rows).to(setup.link.streams.device)

    def get_fixed_levels(self) -> np.ndarray | None:
        """Return the level of each device for the whole run, int64 [K] or [S, K].

        None if levels vary from round to round.
        """
        return None

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        """Return the level of each row in a round.

        Parameters
        ----------
        cohort : Cohort
            Participants, N rows.
        round : int
            Index of the round.
        state : ChannelState
            Channel of the round.

        Returns
        -------
        Tensor, int64 [N]
            Levels, by default those of `get_fixed_levels`.
        """
        return self._table[cohort.flat_index]


def compute_share_bounds(shares: Weights, count: int) -> np.ndarray:
    """Compute the inner bounds of shares of the interval (0, 1).

    Parameters
    ----------
    shares : tuple of float, or None
        Weights of the shares; equal shares for None.
    count : int
        Number of shares.

    Returns
    -------
    ndarray [count - 1]
        Bounds in ascending order.
    """
    weights = np.ones(count) if shares is None else np.asarray(shares, float)
    return np.cumsum(weights / weights.sum())[:-1]


def assign_by_rank(place: np.ndarray, shares: Weights, count: int) -> np.ndarray:
    """Assign devices to shares by their position in an order.

    Parameters
    ----------
    place : ndarray [..., K]
        Position of each of K devices.
    shares : tuple of float, or None
        Weights of the shares; equal shares for None.
    count : int
        Number of shares.

    Returns
    -------
    ndarray, int64 [..., K]
        Share of each device.
    """
    return np.searchsorted(
        compute_share_bounds(shares, count), (place + 0.5) / place.shape[-1], side="right"
    )


def _describe_single_size(algorithm: str) -> Problem:
    """Describe that a method has models of one size, and list methods with several."""
    fitting = registry.list_fitting(
        "algorithm", lambda one: "levels" in registry.get_settings_class(one).model_fields
    )
    text = (
        f"algorithm '{algorithm}' has models of one size; leave the section out, or use one of the "
        f"algorithms {', '.join(fitting)}"
    )
    return make_problem(text, SECTION, "algorithm")
