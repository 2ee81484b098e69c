"""Settings of FedHM."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.algorithms.config import Needs
from otafl.algorithms.config_levels import LevelsConfig, Ratio, ratios
from otafl.core.settings import stackable

SMALLEST_WEIGHT = 1e-9
"""Of a level in the mean, over that of the heaviest: with less it does not take part."""


class _NeedsBySends:
    """`needs` of the settings, which depends on them; of the class, that of the defaults."""

    def __get__(self, config: FedHmConfig | None, owner: Any) -> Needs:
        if config is None:
            return "each"
        products = config.sends == "factors" and config.homogeneous_mode == "weight"
        return "each" if products else "mean"


class FedHmConfig(LevelsConfig):
    """FedHM: the server truncates its dense model to ranks that devices can afford, multiplies the
    returned factors out and averages the weights (Yao et al., "FedHM: Efficient Federated Learning
    for Heterogeneous Models via Low-rank Factorization", Algorithm 1). One ratio for all is its Low
    Rank Model. `sends: tangent` is not in the paper: the factors' changes superpose over the air.
    """

    needs: ClassVar[Any] = _NeedsBySends()

    name: Literal["fedhm"] = "fedhm"
    levels: tuple[Ratio, ...] = ratios(
        (1.0, 0.5, 0.25, 0.125),
        "rank of a layer over its output channels at each level, the largest first; at 1 the layer "
        "is not factorised",
    )
    dense_prefix: int | None = Field(
        None,
        ge=0,
        description="so many of the first layers that could be factorised are not; the model's own "
        "number if not given",
    )
    unroll: Literal["vertical_first", "horizontal_first"] = Field(
        "vertical_first",
        description="a low-rank convolution is k x 1 windows, then 1 x k (as in the paper), or the "
        "other way (as in its code)",
    )
    frobenius_decay: float = stackable(
        1e-4,
        ge=0,
        description="lambda of the penalty lambda/2 |U V^T|^2 on factors, which have no weight "
        "decay; the paper has no value",
    )
    temperature: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="tau of the weights in (2), 5 in the paper where levels change from round to "
        "round; equal weights if not given",
    )
    weight_rule: Literal["paper", "inverse"] = Field(
        "paper",
        description="a level of ratio g counts as exp(g / tau), or exp(-1 / (g tau)) as in the "
        "paper's code",
    )
    sends: Literal["factors", "product", "tangent"] = Field(
        "factors",
        description="what devices send of low-rank layers. factors: their increments; the server "
        "needs each. product: the increment of the whole weight. tangent: its coordinates in the "
        "server's singular vectors, no more than the factors of frame_ratio",
    )
    base: Literal["truncated", "whole"] = Field(
        "truncated",
        description="what increments are added to: the mean of the models that devices started "
        "from, which makes (2), or the server's model, which keeps what truncation cut off",
    )
    frame_ratio: Ratio | None = Field(
        None,
        description="with sends: tangent, the ratio of the singular vectors that devices of the "
        "dense level project on; the largest of levels below 1 if not given",
    )
    homogeneous_mode: Literal["weight", "factor"] = Field(
        "weight",
        description="with one level: averages of weights, factored again in each round, or of "
        "factors as they are, FedAvg on the low-rank model",
    )
    keep_server_history: bool = Field(
        False,
        description="in a round without a device of the dense level the server's model takes part "
        "in its place",
    )

    @property
    def rank_ratios(self) -> tuple[float, ...]:
        """The levels that are factorised."""
        return tuple(ratio for ratio in self.levels if ratio < 1.0)

    def score(self, ratio: float) -> float:
        """The logarithm of a level's weight, up to a constant; 0 for the dense level. Eq. (2)."""
        if self.temperature is None:
            return 0.0
        of = ratio - 1.0 if self.weight_rule == "paper" else 1.0 - 1.0 / ratio
        return of / self.temperature

    @model_validator(mode="after")
    def _falling(self) -> FedHmConfig:
        if any(a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
            raise ValueError(
                f"levels must fall, the largest first, and are {list(self.levels)}; "
                f"{sorted(set(self.levels), reverse=True)} would do"
            )
        return self

    @model_validator(mode="after")
    def _all_count(self) -> FedHmConfig:
        lightest = math.exp(min(self.score(ratio) for ratio in self.levels))
        if lightest < SMALLEST_WEIGHT:
            raise ValueError(
                f"temperature: {self.temperature} leaves level {self.levels[-1]} a weight of "
                f"{lightest:.0e} of a dense model's; a larger one would do"
            )
        return self

    @model_validator(mode="after")
    def _one_low_rank_level(self) -> FedHmConfig:
        if self.homogeneous_mode == "factor" and (len(self.levels) > 1 or self.levels[0] == 1.0):
            raise ValueError(
                "homogeneous_mode: factor averages factors of one rank, and levels are "
                f"{list(self.levels)}; one ratio below 1 would do"
            )
        if self.homogeneous_mode == "factor" and self.keep_server_history:
            raise ValueError(
                "keep_server_history is for a mean of weights, and homogeneous_mode: factor has "
                "none; homogeneous_mode: weight would do"
            )
        return self

    @model_validator(mode="after")
    def _frame_holds_the_factors(self) -> FedHmConfig:
        if self.frame_ratio is None:
            return self
        if self.sends != "tangent":
            raise ValueError(
                f"frame_ratio is for sends: tangent, and it is {self.sends}; leave it out"
            )
        largest = max(self.rank_ratios, default=0.0)
        if self.frame_ratio < largest:
            raise ValueError(
                f"frame_ratio ({self.frame_ratio}) must hold the factors of every level; "
                f"{largest} or more would do"
            )
        return self
