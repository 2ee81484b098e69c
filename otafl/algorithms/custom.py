"""Adapter for a user-defined method, a class that the scenario names `module:Class`.

It derives from `otafl.algorithms.base.Algorithm` or from a method of this package. The keys of the
section are the fields of its class `Settings`. A UserError names tensors of a wrong name or shape
that it returns. Values are not checked, so that the simulation does not wait for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Needs, PayloadKind
from otafl.core import registry
from otafl.core.contracts import Group, Payload
from otafl.user_code.custom_part import (
    Call,
    CustomClass,
    check_blocks,
    check_parts,
    check_rows,
    check_shape,
    describe_kind,
)


def get_class(section: Any) -> type[Algorithm]:
    """Return the class of the method that a section names.

    Raises UserError if it cannot be imported.
    """
    if isinstance(section, CustomAlgorithm):
        return section.component_class
    kind: type[Algorithm] = registry.load_component("algorithm", section.name)
    return kind


def sends_increments(section: Any, settings: Any) -> bool:
    """Return whether the method of a section sends increments under these settings."""
    return get_class(section).describe_payload(settings).is_increment


def find_label_problems(section: Any, labels: str | None) -> Iterator[str]:
    """Yield a sentence where the method of a section cannot train on labels of a kind."""
    excludes = get_class(section).excludes
    if "values" in excludes and labels not in (None, "classes"):
        yield (
            f"algorithm.name: '{section.name}' {excludes['values']}, and the labels of the data "
            "set are no classes; use another method or data set"
        )
    if "tokens" in excludes and labels == "tokens":
        yield (
            f"algorithm.name: '{section.name}' {excludes['tokens']}, and no model of token "
            "sequences does; use another method or data set"
        )


def averages_increments(kind: type[Algorithm]) -> bool:
    """Return whether a method's server tensor "model" moves by averaged increments.

    This is the class attribute. A user-defined class without it must also inherit `update_server`
    from a method that averages increments.
    """
    for one in _list_own_classes(kind):
        if "averages_increments" in vars(one):
            break
        if "update_server" in vars(one):
            return False
    return kind.averages_increments


def _list_own_classes(kind: type[Algorithm]) -> list[type]:
    """List the classes of a method that are not of otafl, the most derived one first."""
    return [one for one in kind.__mro__ if not one.__module__.startswith("otafl.algorithms.")]


def check_payload(call: Call, value: Any) -> Payload:
    """Check that the payload has groups with a row for each device."""
    fine = isinstance(value, tuple) and all(isinstance(one, Group) for one in value)
    call.require(
        fine, f"the payload as {describe_kind(value)}", "a tuple of otafl.core.contracts.Group"
    )
    num_rows = call.given["context"].cohort.num_rows
    each = [group.row_index for group in value if group.row_index is not None]
    for rows in each:
        fine = isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.dim() == 1
        fine = fine and bool(((rows >= 0) & (rows < num_rows)).all())
        call.require(
            fine, f"a row_index as {describe_kind(rows)}", f"int64 [n], from 0 to {num_rows - 1}"
        )
    of_groups = [len(rows) for rows in each]
    once = all(len(rows.unique()) == len(rows) for rows in each)
    call.require(once, "a group with several rows of a device", "one row of a device in a group")
    for group in value:
        check_rows(
            call,
            "the payload's tensor",
            group.tensors,
            [num_rows, *of_groups],
        )
    return value


class CustomAlgorithm(CustomClass):
    """Section of a user-defined method, whose results are checked in every round."""

    table: ClassVar = "algorithm"
    noun: ClassVar = "method"
    base_class: ClassVar = Algorithm
    returns: ClassVar = {
        "run_local_update": check_parts(
            "(devices, payload, loss)",
            check_blocks("devices", "the devices'", "as init made them"),
            check_payload,
            check_shape(lambda given: [given["context"].cohort.num_rows], "a loss of shape "),
        ),
        "update_server": check_blocks("server", "the server's"),
        "on_ack": check_blocks("devices", "the devices'"),
        "count_flops": check_shape(
            lambda given: given["workload"].num_samples.shape,
            "an array of shape ",
            " as workload.num_samples",
            one=True,
        ),
    }

    @property
    def component_class(self) -> type[Algorithm]:
        kind: type[Algorithm] = super().component_class
        if not isinstance(kind.payload, PayloadKind) or kind.payload.needs not in get_args(Needs):
            self.refuse(
                f"has payload = {kind.payload!r}; expected PayloadKind('mean'), or "
                "PayloadKind('each') for a server that uses the update of each device"
            )
        has_on_ack = any("on_ack" in vars(one) for one in _list_own_classes(kind))
        if has_on_ack and not kind.acknowledged_state:
            self.refuse(
                "has on_ack, which is called for declared tensors alone; expected "
                "acknowledged_state = ('NAME',), the device tensors that change by it"
            )
        return kind
