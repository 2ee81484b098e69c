"""User-defined policy, policy(link, **options) -> (p, eta).

The scenario names it `module:function`. p are the transmit scalars, complex or real [S, Q, K], 0
for a silent device. eta is the receive scaling, [S, Q] and above 0. The options are the other keys
of the section. `link` is `otafl.core.contracts.Link`. Devices outside `link.eligible_mask` are
silent, and if all are, eta has no effect. The result is checked in every round, and also |p_k|^2
m_k <= P_k unless the function has an attribute `constraint` of "average" or "none" (default
"peak"); the result then reports it. An attribute `needs_variation = True` requests
`link.variation`. With `is_inversion = True` the function declares that all devices on air have
effective gain one, which transport `type_based` needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, get_args

import torch
from pydantic import PrivateAttr
from torch import Tensor

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import Constraint, PowerPolicy
from otafl.user_code.custom_part import CustomFunction

SLACK = 1e-4
"""Relative rounding error of a power that is accepted."""


class CustomPolicy(PowerPolicy):
    """User-defined policy, with checks of its results.

    Parameters
    ----------
    settings : Settings
        The section of the scenario.
    policy : callable, optional
        The function itself, if the settings' name is only its label.

    Raises
    ------
    UserError
        If there is no such function, it does not accept the section's keys, or its attribute
        `constraint` is not valid.
    """

    may_be_silent: ClassVar[bool] = True

    class Settings(CustomFunction):
        """Section of a user-defined function, `module:function`.

        It is called with the link and the section's other keys, and returns transmit scalars p [S,
        Q, K] and receive scaling eta [S, Q].
        """

        table: ClassVar = "power"
        positional_names: ClassVar = ("link",)

        @property
        def power_constraint(self) -> Constraint:
            """Kind of the power budget, which the function's attribute `constraint` states."""
            return getattr(self.find_function(), "constraint", "peak")

    _section: Settings = PrivateAttr()
    _policy: Callable[..., Any] = PrivateAttr()

    def __init__(self, settings: Settings, policy: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._section = settings
        self._policy = settings.find_function() if policy is None else policy
        if self.power_constraint not in get_args(Constraint):
            settings.refuse(
                f"has the attribute constraint = {self.power_constraint!r}; expected 'peak', "
                "'average' or 'none'"
            )

    @property
    def power_constraint(self) -> Constraint:
        return getattr(self._policy, "constraint", "peak")

    @property
    def is_inversion(self) -> bool:
        return bool(getattr(self._policy, "is_inversion", False))

    @property
    def needs_variation(self) -> bool:
        return bool(getattr(self._policy, "needs_variation", False))

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        p, eta = self._call_policy(_reduce_precision(link))
        p = torch.where(link.eligible_mask, p.to(link.h.dtype), 0.0)
        eta = torch.where(link.eligible_mask.any(-1), eta.to(link.gain.dtype), 1.0)
        self._check(p, eta, link)
        return None, Coefficients(p, eta, p != 0)

    def _call_policy(self, link: Link) -> tuple[Tensor, Tensor]:
        """Return the function's result, two tensors, or raise UserError for other shapes."""
        returned = self._policy(link, **self._section.options)
        expected = (tuple(link.h.shape), tuple(link.h.shape[:2]))
        got = f"a {type(returned).__name__}"
        shapes: tuple[tuple[int, ...], ...] = ()
        if isinstance(returned, tuple) and all(isinstance(one, Tensor) for one in returned):
            shapes = tuple(tuple(one.shape) for one in returned)
            got = "tensors of shapes " + ", ".join(map(str, shapes))
        if shapes != expected:
            self._section.refuse(
                f"returned {got}; expected the tensors (p, eta) of shapes {expected[0]} and "
                f"{expected[1]}"
            )
        p, eta = returned
        return p, eta

    def _check(self, p: Tensor, eta: Tensor, link: Link) -> None:
        """Raise UserError if a number is not finite, eta not above 0, or a power too large.

        If all is well, it synchronises with the device once.
        """
        finite = torch.isfinite(torch.view_as_real(p)).all(-1)
        useful = torch.isfinite(eta) & (eta > 0)
        used = p.abs().double().square() * link.symbol_power / link.budget[:, None]
        within = used <= 1.0 + SLACK if self.power_constraint == "peak" else torch.ones_like(finite)
        if bool((finite & within).all() & useful.all()):
            return
        if not bool(finite.all()):
            where, fault = _find_first(~finite), "a p that is not finite"
        elif not bool(useful.all()):
            where, fault = _find_first(~useful), "an eta that is not a positive number"
        else:
            where = _find_first(~within)
            fault = (
                f"a power |p|^2 m of {float(used[where]):.4g} times the budget; scale p by "
                "(link.budget[:, None] / link.symbol_power).sqrt(), or give the function the "
                "attribute constraint = 'average' or 'none'"
            )
        names = ("trial", "segment", "device")
        place = ", ".join(f"{name} {i}" for name, i in zip(names, where, strict=False))
        self._section.refuse(f"returned, at {place} of the stack, {fault}")


def _reduce_precision(link: Link) -> Link:
    """Return the link in the precision of the run, which is that of a module's parameters."""
    names = ("symbol_power", "segment_lengths", "variation")
    given = {name: vars(link)[name] for name in names if vars(link)[name] is not None}
    return replace(link, **{name: one.to(link.gain.dtype) for name, one in given.items()})


def _find_first(bad: Tensor) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(bad.nonzero()[0].tolist())
