"""User-defined channel estimator, a class that the scenario names `module:Class`.

It derives from `otafl.csi.base.Csi` or from a class of this package, but not from `Perfect`. Its
estimates have the shape of the channel and finite numbers; otherwise there is a UserError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.core.problems import Problem, make_problem
from otafl.csi.base import Csi
from otafl.user_code.custom_part import Call, CustomClass, check_shape

H_HAT = check_shape(lambda given: given["h"].shape, note=", as h")


def check_estimate(call: Call, h_hat: Any) -> Tensor:
    """Check for finite numbers in the shape of h, and return them in its type."""
    finite = bool(torch.isfinite(H_HAT(call, h_hat).abs()).all())
    call.require(finite, "numbers that are not finite", "finite numbers")
    return h_hat.to(call.given["h"].dtype)


class CustomCsi(CustomClass):
    """User-defined estimator, which is checked in every round."""

    table: ClassVar = "csi"
    base_class: ClassVar = Csi
    returns: ClassVar = {"estimate": check_estimate}

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return also that of a class whose estimates would not be asked for."""
        problems = list(super().check(scenario))
        if not problems and self.component_class.is_perfect:
            text = (
                f"{self.name!r} derives from Perfect, whose estimate is the channel itself; derive "
                "from otafl.csi.base.Csi"
            )
            problems.append(make_problem(text, "csi.name"))
        return problems
