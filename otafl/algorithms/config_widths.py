"""Settings of methods whose devices train networks of fewer channels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from otafl.algorithms.config_levels import LevelsConfig, Ratio, ratios

WidthRule = Literal["ceil", "round", "floor"]

_Rule: WidthRule = Field(
    "ceil",
    description="what becomes of a width times a layer's channels (at least one is kept); round "
    "has the model sizes of FedHM's tables",
)


def descending(name: str, values: Sequence[float]) -> None:
    """Raises ValueError unless each value is smaller than the one before."""
    if any(a <= b for a, b in itertools.pairwise(values)):
        got = ", ".join(f"{value:g}" for value in values)
        order = ", ".join(f"{value:g}" for value in sorted(set(values), reverse=True))
        raise ValueError(
            f"{name} must go from the largest to the smallest, each once; got {got}, and {order} "
            "would do"
        )


class WidthsConfig(LevelsConfig):
    """What methods have whose levels are slices of one network."""

    averages: ClassVar[bool] = True

    levels: tuple[Ratio, ...] = ratios(
        (1.0, 0.5, 0.25, 0.125), "width of each model size, the largest first"
    )
    width_rule: WidthRule = _Rule
    scaler: bool = Field(
        True,
        description="in training, what a convolution puts out is divided by the level's width over "
        "the largest (Diao et al. 2021, section 3)",
    )
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        1.0,
        description="largest norm of a minibatch's gradient; longer ones are shortened. 1 in the "
        "authors' programs",
    )

    @field_validator("levels")
    @classmethod
    def _descending(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        descending("levels", levels)
        return levels


class HeteroFLConfig(WidthsConfig):
    """HeteroFL (Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient
    Federated Learning for Heterogeneous Clients"): a device trains the first channels of every
    layer, and each number of the model is the mean over the devices that trained it. With one
    level it is federated averaging of a slim network."""

    name: Literal["heterofl"] = "heterofl"
    aggregation: Literal["shared", "own"] = Field(
        "shared",
        description="shared: one model, of which the levels are slices. own: a model for each "
        "level, federated among the devices of that level alone",
    )


class FedRolexConfig(WidthsConfig):
    """FedRolex (Alam, Liu, Yan, Zhang 2022, "FedRolex: Model-Heterogeneous Federated Learning with
    Rolling Sub-Model Extraction"): HeteroFL whose slices move on by one channel a round."""

    name: Literal["fedrolex"] = "fedrolex"


class SplitMixConfig(LevelsConfig):
    """Split-Mix (Hong, Wang, Wang, Zhou 2022, "Efficient Split-Mix Federated Learning for On-Demand
    and In-Situ Customization"): independent narrow networks, of which a device trains as many as
    it can, and whose scores are averaged."""

    averages: ClassVar[bool] = True

    name: Literal["split_mix"] = "split_mix"
    atom: Ratio = Field(0.125, description="width of each of the narrow networks")
    levels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (8, 4, 2, 1),
        min_length=1,
        description="how many of the networks a device of each level trains, the largest first; "
        "the first is how many there are",
    )
    width_rule: WidthRule = _Rule

    @field_validator("levels")
    @classmethod
    def _descending(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        descending("levels", levels)
        return levels
