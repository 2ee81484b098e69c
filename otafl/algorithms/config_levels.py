"""Settings that methods with models of several sizes share."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from otafl.algorithms.config import Needs
from otafl.core.settings import Settings, stackable

Ratio = Annotated[float, Field(gt=0, le=1)]


class LevelsConfig(Settings):
    """What every method has whose devices train models of different size; defaults as in FedHM,
    Table 4 and section 5.1."""

    needs: ClassVar[Needs] = "mean"

    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the first round")
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="rounds from which on the step is decay_factor times what it was"
    )
    decay_factor: float = Field(0.1, gt=0, le=1, description="of the step at a milestone")
    momentum: float = stackable(
        0.9, ge=0, lt=1, description="of local SGD; its memory starts at zero in every round"
    )
    weight_decay: float = stackable(1e-4, ge=0, description="of local SGD, on all parameters")
    masked_loss: bool = Field(
        True,
        description="masked cross-entropy: the scores of classes that a device has no samples of "
        "are 0 in its loss (Diao et al. 2021, section 3)",
    )
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        None, description="largest norm of a minibatch's gradient; longer ones are shortened"
    )


def ratios(default: tuple[float, ...], description: str) -> tuple[float, ...]:
    """The field of the sizes, the largest first."""
    field: tuple[float, ...] = Field(default, min_length=1, description=description)
    return field
