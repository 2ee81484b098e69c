"""Take a method of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.algorithms.base.Algorithm` or from a method of this package. The keys of the
section are the fields of its class `Settings`. What it gives to the engine has the right shapes, or
there is a UserError that says what has not; only shapes are looked at, which waits for no device.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from otafl.algorithms.base import Algorithm, Needs
from otafl.core import registry
from otafl.core.contracts import Group, Payload
from otafl.user_code.custom_part import CustomClass
from otafl.user_code.returned import (
    Call,
    check_blocks,
    check_parts,
    check_rows,
    check_shape,
    describe_kind,
)


def get_class(section: Any) -> type[Algorithm]:
    """Return the class of the method that a section names. Raises UserError if it cannot be had."""
    if isinstance(section, CustomAlgorithm):
        return section.component_class
    kind: type[Algorithm] = registry.load_component("algorithm", section.name)
    return kind


def averages_increments(kind: type[Algorithm]) -> bool:
    """Say whether a method's server block "model" moves by averaged increments: as the class says;
    a class of the user's that says nothing must have kept the server step of one that does."""
    for one in kind.__mro__:
        built_in = one.__module__.startswith("otafl.algorithms.")
        if not built_in and "averages_increments" in vars(one):
            break
        if not built_in and "update_server" in vars(one):
            return False
    return kind.averages_increments


def check_payload(call: Call, value: Any) -> Payload:
    """Require groups with a row a device."""
    fine = isinstance(value, tuple) and all(isinstance(one, Group) for one in value)
    call.require(
        fine, f"the payload as {describe_kind(value)}", "a tuple of otafl.core.contracts.Group"
    )
    of_groups = [len(group.row_index) for group in value if group.row_index is not None]
    for group in value:
        check_rows(
            call,
            "the payload's block",
            group.tensors,
            [call.given["context"].cohort.num_rows, *of_groups],
        )
    return value


class CustomAlgorithm(CustomClass):
    """The section names a method of the user's, which is checked in every round."""

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
                f"has needs = {kind.needs!r}; the attribute needs = 'mean' would do, or 'each' "
                "for a server that must tell devices apart"
            )
        return kind
