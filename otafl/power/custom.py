"""User-defined policy: a function policy(link, **options) -> (p, eta), or a class.

The scenario names it `module:name`. A class derives from `PowerPolicy` or from a policy of this
package. As in built-in policies, its fields are the keys of the section, `prepare` returns its
state, and `compute_coefficients` gets and returns the state.

A function gets `otafl.core.contracts.Link` and the other keys of the section. It returns p, the
transmit scalars, complex or real [S, Q, K], 0 for a silent device, and eta, the receive scaling,
[S, Q] and above 0. Its attributes declare what a class has as properties: `constraint` ("peak" by
default) as `power_constraint`, `needs_variation`, `needs_segment_power` and `is_inversion`. An
object that can be called may have attributes as memory. Each stack of trials starts with a copy of
the object. Checkpoints save the attributes that are numbers, texts, tensors and arrays, also in
lists and dicts.

Devices outside `link.eligible_mask` are silent, and if all are, eta has no effect. The result is
checked in every round: finite numbers, and the power budget of "peak" and "sum".
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.power.base import Constraint, PowerPolicy, get_segment_lengths
from otafl.user_code import loading
from otafl.user_code.custom_part import Call, CustomClass, check_parts, describe_kind

SLACK = 1e-4
"""Relative rounding error of a power that is accepted."""

NEGLIGIBLE = 1e-30
"""Symbol power of a zero update; a budget over it may not fit in single precision."""


def _accept(call: Call, state: Any) -> Any:
    """Accept any state."""
    return state


def _check_coefficients(call: Call, given: Any) -> Coefficients:
    """Check the coefficients of a class as those of a function."""
    call.require(isinstance(given, Coefficients), describe_kind(given), "a Coefficients")
    link: Link = call.given["link"]
    shapes = tuple(tuple(one.shape) for one in (given.p, given.eta, given.active_mask))
    expected = (tuple(link.h.shape), tuple(link.h.shape[:2]), tuple(link.h.shape))
    call.require(shapes == expected, f"p, eta and active_mask of shapes {shapes}", f"{expected}")
    p, eta, idle = _silence(given.p.to(given.p.dtype.to_complex()), given.eta, link)
    fault = _find_fault(p, eta, link, call.part.power_constraint)
    call.require(not fault, fault, "finite numbers within the power budget")
    return replace(given, p=p, eta=eta, active_mask=given.active_mask & ~idle)


class CustomPower(CustomClass):
    """Section of a user-defined policy, `module:name`, a class or a function."""

    table: ClassVar = "power"
    base_class: ClassVar = PowerPolicy
    returns: ClassVar = {
        "compute_coefficients": check_parts("(state, Coefficients)", _accept, _check_coefficients)
    }

    @property
    def is_class(self) -> bool:
        """Whether the name is that of a class; False if there is no such object."""
        with contextlib.suppress(UserError):
            return inspect.isclass(loading.load(self.name, self.key))
        return False

    @property
    def values(self) -> Any:
        return super().values if self.is_class else self

    @property
    def stackable_names(self) -> tuple[str, ...]:
        return super().stackable_names if self.is_class else ()

    @property
    def power_constraint(self) -> Constraint:
        """Kind of the power budget, which the function's attribute `constraint` states."""
        return getattr(self.find_function(), "constraint", "peak")

    def find_function(self) -> Any:
        if self.is_class:
            return self.component_class
        return loading.load_checked(self.name, self.key, self.options, "link")

    def check(self, scenario: Any) -> Iterable[Problem]:
        return super().check(scenario) if self.is_class else ()

    def build(self, *args: Any) -> PowerPolicy:
        """Return the policy, whose results are checked.

        args: the function itself, if the name is only its label.
        """
        policy = super().build() if self.is_class and not args else self._wrap_function(*args)
        kinds = get_args(Constraint)
        if policy.power_constraint not in kinds:
            self.refuse(
                f"has the power constraint {policy.power_constraint!r}; expected one of "
                f"{', '.join(map(repr, kinds))}"
            )
        return policy

    def _wrap_function(self, function: Callable[..., Any] | None = None) -> FunctionPolicy:
        """Return the policy of a function, or of a copy of the object that the name finds."""
        try:
            return FunctionPolicy(self, function or copy.deepcopy(self.find_function()))
        except (TypeError, RuntimeError) as error:  # of what the user's object holds
            self.refuse(
                f"cannot be copied for each stack of trials ({error}); keep only tensors without "
                "gradients, arrays, numbers and texts in its attributes"
            )


class FunctionPolicy(PowerPolicy):
    """User-defined function, with checks of its results.

    Parameters
    ----------
    section : CustomPower
        The section of the scenario.
    policy : callable
        The function, or an object with memory.
    """

    may_be_silent: ClassVar[bool] = True

    _section: CustomPower = PrivateAttr()
    _policy: Callable[..., Any] = PrivateAttr()

    def __init__(self, section: CustomPower, policy: Callable[..., Any]) -> None:
        super().__init__()
        self._section, self._policy = section, policy

    @property
    def power_constraint(self) -> Constraint:
        return getattr(self._policy, "constraint", "peak")

    @property
    def is_inversion(self) -> bool:
        return bool(getattr(self._policy, "is_inversion", False))

    @property
    def needs_variation(self) -> bool:
        return bool(getattr(self._policy, "needs_variation", False))

    @property
    def needs_segment_power(self) -> bool:
        return bool(getattr(self._policy, "needs_segment_power", False))

    @property
    def _memory(self) -> dict[str, Any]:
        """The attributes of an object, or of the object that a method belongs to."""
        holder: Any = self._policy
        while isinstance(holder, functools.partial):
            holder = holder.func
        holder = getattr(holder, "__self__", holder)
        is_code = inspect.isroutine(holder) or inspect.isclass(holder)
        return {} if is_code else getattr(holder, "__dict__", {})

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> dict[str, Any]:
        """Return the memory of an object; it is empty for a function."""
        return self._copy_memory()

    def _copy_memory(self) -> dict[str, Any]:
        """Return the attributes that are plain data, which a checkpoint can save."""
        return {name: value for name, value in self._memory.items() if _is_plain(value)}

    def compute_coefficients(
        self, state: dict[str, Any], link: Link
    ) -> tuple[dict[str, Any], Coefficients]:
        self._memory.update(state)  # after a checkpoint, the memory is in the state
        returned = self._policy(_reduce_precision(link), **self._section.options)
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
        p, eta, _ = _silence(p.to(link.h.dtype), eta.to(link.gain.dtype), link)
        if fault := _find_fault(p, eta, link, self.power_constraint):
            self._section.refuse(f"returned, {fault}")
        return self._copy_memory(), Coefficients(p, eta, p != 0)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, a tensor or an array, or contains only these."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if type(value) in (list, tuple, set):
        return all(map(_is_plain, value))
    plain = complex, float, int, str, Tensor, np.ndarray, np.generic
    return value is None or isinstance(value, plain)


def _silence(p: Tensor, eta: Tensor, link: Link) -> tuple[Tensor, Tensor, Tensor]:
    """Return p and eta where devices without a channel, or idle ones, are silent, and these.

    A device is idle, bool [S, Q, K], if its p is not finite because its update is zero. If no
    other devices are left, eta is 1.
    """
    idle = (link.symbol_power < NEGLIGIBLE) & ~torch.isfinite(p)
    left = link.eligible_mask & ~idle
    return torch.where(left, p, 0.0), torch.where(left.any(-1), eta, 1.0), idle


def _find_fault(p: Tensor, eta: Tensor, link: Link, constraint: str) -> str:
    """Describe a number that is not finite, an eta not above 0, or a power above the budget.

    If all is well, the result is empty, and it synchronises with the device once. The budget of
    "sum" is that of the round's participants together. If the policy knows the power of each
    segment, the budget bounds the mean over the payload's segments. A trial whose updates are not
    finite has no fault: the run finds that it diverged.
    """
    diverged = link.eligible_mask & ~torch.isfinite(link.symbol_power)
    finite = torch.isfinite(p) | diverged
    useful = torch.isfinite(eta) & (eta > 0) | diverged.any(-1)
    power, budget = p.abs().double().square() * link.symbol_power, link.budget[:, None].double()
    if link.segment_power is not None:
        share = (lengths := get_segment_lengths(link)[0]) / lengths.sum()
        power = p.abs().double().square() * link.segment_power
        power = (power * share[:, None]).sum(1, keepdim=True)
    used = power / budget
    if constraint == "sum":
        whole = (budget * link.transmit_mask[:, None]).sum(-1)
        used = power.sum(-1) / torch.where(whole > 0, whole, 1.0)
    within = ~(used > 1.0 + SLACK)  # NaN if diverged
    if constraint in ("average", "none"):
        within = torch.ones_like(within)
    if bool(finite.all() & within.all() & useful.all()):
        return ""
    if not bool(finite.all()):
        where, fault = _find_first(~finite), "a p that is not finite"
    elif not bool(useful.all()):
        where, fault = _find_first(~useful), "an eta that is not a positive number"
    else:
        where = _find_first(~within)
        whose = "the participants' budgets together" if constraint == "sum" else "the budget"
        fault = (
            f"a power |p|^2 m of {float(used[where]):.4g} times {whose}; scale p by "
            "(link.budget[:, None] / link.symbol_power).sqrt(), or declare another constraint: "
            + ", ".join(map(repr, get_args(Constraint)))
        )
    names = ("trial", "segment", "device")
    place = ", ".join(f"{name} {i}" for name, i in zip(names, where, strict=False))
    return f"at {place} of the stack, {fault}"


def _reduce_precision(link: Link) -> Link:
    """Return the link in the precision of the run, which is that of a module's parameters."""
    names = ("symbol_power", "segment_lengths", "variation", "segment_power")
    given = {name: vars(link)[name] for name in names if vars(link)[name] is not None}
    return replace(link, **{name: one.to(link.gain.dtype) for name, one in given.items()})


def _find_first(bad: Tensor) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(bad.nonzero()[0].tolist())
