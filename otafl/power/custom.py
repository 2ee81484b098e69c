"""A policy of the user's own: a function of the link,

    policy(link, **options) -> (p, eta)

p: [S, Q, K] complex or real transmit scalars, 0 where silent; eta: [S, Q] receive scaling > 0;
options: the other keys of the section. `link` is `otafl.core.contracts.Link`. What it returns is
checked in every round, and that |p_k|^2 m_k <= P_k unless the function says otherwise: an attribute
`constraint` of the function of "average" or "none" (default "peak") leaves the power unchecked, and
the result reports it. An attribute `wants_variation = True` asks for `link.variation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from otafl.core import custom
from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.core.errors import UserError
from otafl.power.config import CustomPowerConfig
from otafl.power.scalars import senders

Constraint = Literal["peak", "average", "none"]

SLACK = 1e-4
"""Rounding that a budget forgives, relative."""


class CustomPolicy:
    may_be_silent: ClassVar[bool] = True

    def __init__(self, config: CustomPowerConfig, policy: Callable[..., Any] | None = None) -> None:
        """policy: the function itself, where the config's name only says what it is called."""
        self._name, self._options = config.name, config.options
        self._policy = custom.load(config.name, "power.name") if policy is None else policy
        custom.check_keys(self._policy, config.name, "power.name", self._options, "link")
        constraint: Constraint = getattr(self._policy, "constraint", "peak")
        if constraint not in get_args(Constraint):
            raise UserError(
                f"power.name: the attribute constraint of '{self._name}' is {constraint!r}; "
                "'peak', 'average' or 'none' would do"
            )
        self.constraint = constraint
        self.wants_variation = bool(getattr(self._policy, "wants_variation", False))

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        p, eta = self._called(link)
        p = torch.where(senders(link), p.to(link.h.dtype), 0.0)
        eta = eta.to(link.gain.dtype)
        self._check(p, eta, link)
        return None, Coefficients(p, eta, p != 0)

    def _called(self, link: Link) -> tuple[Tensor, Tensor]:
        """What the function returns, if it is two tensors of the right shapes."""
        returned = self._policy(link, **self._options)
        expected = (tuple(link.h.shape), tuple(link.h.shape[:2]))
        if isinstance(returned, tuple) and all(isinstance(one, Tensor) for one in returned):
            shapes = tuple(tuple(one.shape) for one in returned)
            if shapes == expected:
                return returned
            got = "tensors of shapes " + ", ".join(map(str, shapes))
        else:
            got = f"a {type(returned).__name__}"
        raise UserError(
            f"power.name: '{self._name}' returned {got}; the tensors (p, eta) of shapes "
            f"{expected[0]} and {expected[1]} would do"
        )

    def _check(self, p: Tensor, eta: Tensor, link: Link) -> None:
        """One question to the device where all is well."""
        finite = torch.isfinite(torch.view_as_real(p)).all(-1)
        useful = torch.isfinite(eta) & (eta > 0)
        used = p.abs().square() * link.power / link.budget[:, None]
        within = used <= 1.0 + SLACK if self.constraint == "peak" else torch.ones_like(finite)
        if bool((finite & within).all() & useful.all()):
            return
        if not bool(finite.all()):
            where, fault = _first(~finite), "a p that is not finite"
        elif not bool(useful.all()):
            where, fault = _first(~useful), "an eta that is not a positive number"
        else:
            where = _first(~within)
            fault = (
                f"a power |p|^2 m of {float(used[where]):.4g} times the budget; scale p by "
                "(link.budget[:, None] / link.power).sqrt(), or give the function the attribute "
                "constraint = 'average' or 'none'"
            )
        names = ("trial", "segment", "device")
        place = ", ".join(f"{name} {i}" for name, i in zip(names, where, strict=False))
        raise UserError(f"power.name: '{self._name}' returned, at {place} of the stack, {fault}")


def _first(bad: Tensor) -> tuple[int, ...]:
    """The index of the first True."""
    return tuple(bad.nonzero()[0].tolist())
