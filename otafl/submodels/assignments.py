"""Capacity levels by the number, speed, memory or channel of a device, and at random.

A capacity level is the submodel of a device in a round: its position in the list from the largest,
which is 0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

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
from otafl.core.settings import Decibels
from otafl.core.units import db_to_linear
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


class FixedLevels(SubmodelAssignment):
    """One level of every device for the whole run (FedHM's fixed heterogeneity).

    Examples
    --------
    `studies/fedhm/fedhm_table3.yaml` uses it.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["fixed"] = "fixed"
        shares: Shares = None
        assignment: Literal["blocks", "random"] = "blocks"
        """order of the devices: blocks, the first devices have the largest models; random, drawn
        once a trial"""

    def get_fixed_levels(self) -> np.ndarray:
        devices = self.setup.hardware.flops_per_s.shape[1]
        place = np.arange(devices)
        if self.settings.assignment == "random":
            generators = self.setup.link.streams.make_generators(DRAWS)
            place = np.stack([generator.permutation(devices) for generator in generators])
        return assign_by_rank(place, self.settings.shares, len(self.setup.submodels))


class DynamicLevels(SubmodelAssignment):
    """A random level of every device in every round (FedHM's dynamic heterogeneity).

    The shares are the probabilities of the levels.

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` uses it.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["dynamic"] = "dynamic"
        shares: Shares = None

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        self._bounds = torch.from_numpy(compute_share_bounds(settings.shares, len(setup.submodels)))

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        streams = self.setup.link.streams
        at = streams.draw_device_uniform(DRAWS, round, cohort.trial, cohort.device, (1,))
        return torch.searchsorted(self._bounds.to(at), at.flatten().contiguous(), right=True)


class ComputeLevels(SubmodelAssignment):
    """Largest models for the devices that compute fastest.

    Examples
    --------
    `docs/heterogeneous.md` has a scenario with `capacity_levels: compute`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            "devices.compute.name": "lognormal",
        }

        name: Literal["compute"] = "compute"
        shares: Shares = None

    def get_fixed_levels(self) -> np.ndarray:
        speed = self.setup.hardware.flops_per_s
        place = (-speed).argsort(1, kind="stable").argsort(1, kind="stable")
        return assign_by_rank(place, self.settings.shares, len(self.setup.submodels))


COPIES = 3
"""Copies of the parameters in training: themselves, gradients, momentum."""


class MemoryLevels(SubmodelAssignment):
    """Largest model whose training fits into the memory of a device.

    Training takes parameters, gradients, momentum, and the activations of a minibatch for the
    backward pass.

    Raises
    ------
    UserError
        If a device cannot hold the smallest model.

    Examples
    --------
    `docs/devices.md` has a scenario with `capacity_levels: memory`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            "devices.compute": {"name": "drawn", "memory_mb": {"choice": [64.0, 1.0]}},
        }

        name: Literal["memory"] = "memory"

        def count_values(self, levels: int) -> dict[str, int]:
            return {}

    def get_fixed_levels(self) -> np.ndarray:
        setup = self.setup
        bytes_of = torch.finfo(setup.link.streams.dtype).bits / 8
        need = np.array(
            [
                (COPIES * size.num_params + setup.load.batch_size * size.saved_activations)
                * bytes_of
                / 2**20
                for size in setup.submodels
            ]
        )
        memory = setup.hardware.memory_mb
        if memory.min() < need[-1]:
            raise UserError(
                f"memory_mb in devices.compute: a device has {memory.min():g}, but training the "
                f"smallest model takes {need[-1]:.3g} MiB; use more memory, a smaller level or a "
                "smaller batch"
            )
        return np.asarray((need <= memory[..., None]).argmax(-1))


class ChannelLevels(SubmodelAssignment):
    """Largest models for the participants with the best channels, or with a sufficient SNR.

    Examples
    --------
    `docs/heterogeneous.md` has a scenario with `capacity_levels: channel`.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["channel"] = "channel"
        shares: Weights = None
        """share of a round's participants on each level, as weights; equal shares if not given"""
        min_snr_db: tuple[Decibels, ...] | None = None
        """least estimated SNR at full power in dB of each level except the smallest, from the
        largest model, instead of shares; not used if not given"""

        def count_values(self, levels: int) -> dict[str, int]:
            return {"shares": levels, "min_snr_db": levels - 1}

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        self._bounds = torch.from_numpy(compute_share_bounds(settings.shares, len(setup.submodels)))
        self._least = None
        if settings.min_snr_db is not None:
            self._least = db_to_linear(torch.tensor(settings.min_snr_db))

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        snr = self.setup.link.estimate_snr(state, round).flatten()[cohort.flat_index]
        if self._least is not None:
            return (snr[:, None] < self._least.to(snr)).sum(1)
        order = (-snr).argsort(stable=True)
        order = order[cohort.trial[order].argsort(stable=True)]  # by trial, the largest SNR first
        rows = cohort.rows_per_trial
        first = rows.cumsum(0) - rows
        place = torch.empty_like(snr)
        place[order] = torch.arange(cohort.num_rows, device=snr.device).to(snr)
        at = (place - first[cohort.trial] + 0.5) / rows[cohort.trial]
        return torch.searchsorted(self._bounds.to(at), at, right=True)


WORD = 32.0
"""Bits of a parameter."""


class DeadlineLevels(SubmodelAssignment):
    """Largest model that a device can train and send within a deadline.

    A device sends 32 bits a parameter at its estimated rate in the round, and participants share
    the band in turns. It trains the smallest model if no model is fast enough.

    Notes
    -----
    Level l with P_l parameters and C_l operations takes, on a device of f operations a second, with
    the rate r of its share of the band,

    .. math::

        C_l / f + 32 P_l / r

    seconds. The device trains the first level that takes at most the deadline.

    Examples
    --------
    `docs/heterogeneous.md` has a scenario with `capacity_levels: deadline`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            f"{SECTION}.seconds": 1.0,
        }

        name: Literal["deadline"] = "deadline"
        seconds: float = Field(gt=0)
        """seconds for local work and upload together"""

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        streams = setup.link.streams
        new = functools.partial(torch.tensor, dtype=streams.dtype, device=streams.device)
        self._bits = new([WORD * size.num_params for size in setup.submodels])
        self._speed = new(setup.hardware.flops_per_s.ravel())

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        link = self.setup.link
        snr = link.estimate_snr(state, round).flatten()[cohort.flat_index]
        band = link.budget.bandwidth_hz[cohort.trial] / cohort.rows_per_trial[cohort.trial]
        rate = (band * torch.log2(1.0 + snr)).clamp_min(1e-30)
        load = self.setup.load.select_devices(cohort.flat_index.cpu().numpy())
        flops = np.stack([size.flops_fn(load) for size in self.setup.submodels], 1)
        work = torch.from_numpy(flops).to(self._speed) / self._speed[cohort.flat_index, None]
        seconds = work + self._bits / rate[:, None]
        late = (seconds > self.settings.seconds).long()
        return late.cumprod(1).sum(1).clamp_max(len(self._bits) - 1)  # the first in time
