"""Adapter for a user-defined method, a class that the scenario names `module:Class`.

It derives from `otafl.algorithms.base.Algorithm` or from a method of this package. The keys of the
section are the fields of its class `Settings`. A UserError names tensors of a wrong shape that it
returns. Only shapes are checked, so that the simulation does not wait for a GPU.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from otafl.algorithms.base import Algorithm, Needs
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


def averages_increments(kind: type[Algorithm]) -> bool:
    """Return whether a method's server tensor "model" moves by averaged increments.

    This is the class attribute. A user-defined class without it must also inherit `update_server`
    from a method that averages increments.
    """
    for one in kind.__mro__:
        built_in = one.__module__.startswith("otafl.algorithms.")
        if not built_in and "averages_increments" in vars(one):
            break
        if not built_in and "update_server" in vars(one):
            return False
    return kind.averages_increments


def check_payload(call: Call, value: Any) -> Payload:
    """Check that the payload has groups with a row for each device."""
    fine = isinstance(value, tuple) and all(isinstance(one, Group) for one in value)
    call.require(
        fine, f"the payload as {describe_kind(value)}", "a tuple of otafl.core.contracts.Group"
    )
    of_groups = [len(group.row_index) for group in value if group.row_index is not None]
    for group in value:
        check_rows(
            call,
            "the payload's tensor",
            group.tensors,
            [call.given["context"].cohort.num_rows, *of_groups],
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
        if kind.needs not in get_args(Needs):
            self.refuse(
                f"has needs = {kind.needs!r}; expected needs = 'mean', or 'each' for a server "
                "that uses the update of each device"
            )
        return kind
