"""Settings that several methods share."""

from __future__ import annotations

from collections.abc import Iterator

from otafl.core import settings
from otafl.core.settings import declare_stackable


class AveragedSettings(settings.Settings):
    """Settings of methods with one global model, to which the server adds the mean increment."""

    learning_rate: float = declare_stackable(0.01, gt=0)
    """step size of local SGD on the aggregated model; pFedBreD's alpha_m"""
    server_learning_rate: float = declare_stackable(1.0, gt=0)
    """factor of the averaged increment; 2 is the trick AM of pFedBreD, appendix C.4"""


class DecayedSettings(settings.Settings):
    """Settings of methods with one global model whose local step size decays over the rounds."""

    learning_rate: float = declare_stackable(0.1, gt=0)
    """step size of local SGD in the first round"""
    decay: float = declare_stackable(0.0, ge=0)
    """rate of the decay: the step size of round t is learning_rate / (1 + decay t)"""


def declare_personal_rate() -> float:
    """Declare the step size of a device's own model.

    Returns
    -------
    float
        Stackable setting, above 0.
    """
    rate: float = declare_stackable(
        0.01, gt=0, description="step size of SGD on a device's own model; pFedBreD's alpha"
    )
    return rate


def declare_penalty(default: float, description: str) -> float:
    """Declare the weight of a penalty.

    Parameters
    ----------
    default : float
        Default of the setting.
    description : str
        Description of the setting.

    Returns
    -------
    float
        Stackable setting, not negative.
    """
    weight: float = declare_stackable(default, ge=0, description=description)
    return weight


def find_overshoot(rate_key: str, rate: float, weight: float) -> Iterator[str]:
    """Check that a step on a penalty does not reach its centre.

    Parameters
    ----------
    rate_key : str
        Name of the setting of the step size.
    rate, weight : float
        Step size, and weight of the penalty.

    Yields
    ------
    str
        Message if the product of both is 1 or more.
    """
    if rate * weight >= 1:
        yield (
            f"{rate_key} times penalty must be below 1, because a step on the penalty alone "
            f"otherwise passes the global model; got {rate:g} times {weight:g}"
        )
