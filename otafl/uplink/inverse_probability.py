r"""Weights that make up for lost updates: w_k / p_k, with p_k the probability of delivery.

With b_k = 1 for a delivered update of device k and 0 for a lost one, the server takes

.. math::

    \hat{x} = \sum_k \frac{w_k}{p_k} b_k x_k                                                (1)

in place of the mean over the delivered ones. Its mean over the losses is sum_k w_k x_k, and its
variance is sum_k w_k^2 x_k^2 (1 - p_k) / p_k. The factor 1 / p_k is at most `max_inverse`, beyond
which (1) is biased towards the devices that are heard more often.

References
----------
Horvitz, Thompson 1952, "A Generalization of Sampling Without Replacement from a Finite Universe".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NoReturn

from pydantic import Field
from torch import Tensor

from otafl.algorithms.custom import get_class
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.uplink.base import Parts, Transport
from otafl.uplink.bounds import LIMITS
from otafl.uplink.delivery import Delivery

KEY = "transport.weighting"


class LossSettings(Transport.Settings):
    """Weights of delivered updates on uplinks whose loss probabilities are known."""

    weighting: Literal["delivered", "inverse_probability"] = "delivered"
    """weights of the delivered updates: normalised over them, or divided by the probability of
    their delivery at the device's mean gain, so that the mean over the losses is unbiased"""
    max_inverse: float = Field(10.0, ge=1)
    """largest factor 1 / p of a weight"""

    @property
    def divides_by_probability(self) -> bool:
        """Whether weights are divided by the probability of delivery."""
        return self.weighting == "inverse_probability"

    @property
    def assumes_increments(self) -> str:
        """The reason why devices must send increments."""
        return "sums weights whose total varies" if self.divides_by_probability else ""

    def check(self, scenario: Any) -> Iterator[Problem]:
        """Return what makes the probability of delivery unknown."""
        if not self.divides_by_probability:
            return
        method, devices = scenario.algorithm, scenario.devices
        selection = registry.load_component("selection", devices.selection.name)
        needs = get_class(method).describe_payload(method.values).needs
        for key, is_given, remedy in (
            (
                "devices.deadline_s",
                devices.deadline_s is not None,
                "it bounds local work, so leave it out, and bound the upload by "
                "transport.max_symbols with transport: digital",
            ),
            ("devices.selection", selection.uses_sounding, "use selection: uniform"),
            ("robust", scenario.robust.is_active, "leave it out"),
            ("algorithm", needs == "each", "use an algorithm that needs the mean"),
        ):
            if is_given:
                text = f"no weight w / p is known with it ({KEY}: inverse_probability); {remedy}"
                yield make_problem(text, key, KEY)


def refuse(fault: str) -> NoReturn:
    """Raise UserError for an uplink without known loss probabilities."""
    raise UserError(f"{KEY}: 'inverse_probability' {fault}; use weighting: delivered")


def divide_weights(
    delivery: Delivery, probability: Tensor, settings: LossSettings, parts: Parts
) -> None:
    """Divide the weights of a delivery's signals by probabilities of delivery [S, K].

    Raises UserError if a signal is no weighted mean, or if losses have further causes.
    """
    link, limits = parts.alignment, delivery.limits
    if link.impairments.adds_noise or any(getattr(limits, name) is not None for name in LIMITS):
        refuse("does not know the losses by energy bounds, crashes or interference")
    if not link.csi.is_perfect or parts.privacy is not None:
        refuse("needs csi: perfect and no privacy.clip")
    if any(sent.mask is not None or not sent.linear for sent in delivery.uplink):
        refuse("needs updates of which the server takes one weighted mean of all coordinates")
    inverse = probability.reciprocal().clamp_max(settings.max_inverse)
    delivery.uplink[:] = [
        replace(sent, inverse=sent.take_rows(inverse)) for sent in delivery.uplink
    ]
