"""Settings that personalised methods share."""

from __future__ import annotations

from typing import ClassVar

from otafl.algorithms.config import Needs
from otafl.core.settings import Settings, stackable


class AveragedConfig(Settings):
    """What every method with one global model has: the server adds the mean increment to it."""

    needs: ClassVar[Needs] = "mean"
    averages: ClassVar[bool] = True

    learning_rate: float = stackable(
        0.01, gt=0, description="SGD step of the model that is aggregated; pFedBreD's alpha_m"
    )
    server_learning_rate: float = stackable(
        1.0,
        gt=0,
        description="factor on the averaged increment; 2 is the trick AM of pFedBreD, appendix C.4",
    )


def personal_rate() -> float:
    """The field of the step of a device's own model."""
    rate: float = stackable(
        0.01, gt=0, description="SGD step of a device's own model; pFedBreD's alpha"
    )
    return rate


def penalty(default: float, description: str) -> float:
    """The field of a penalty's weight."""
    weight: float = stackable(default, ge=0, description=description)
    return weight
