"""User-defined codec, a class that the scenario names `module:Class`.

It derives from `otafl.codecs.base.Codec` or from a codec of this package. Its results have the
right shapes; otherwise there is a UserError that names the wrong one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from otafl.codecs.base import Codec
from otafl.core.contracts import Group
from otafl.user_code.custom_part import (
    Call,
    CustomClass,
    check_blocks,
    check_parts,
    check_rows,
    describe_kind,
)


def check_group(call: Call, group: Any) -> Group:
    """Check for a group with one row per device."""
    call.require(isinstance(group, Group), describe_kind(group), "an otafl.core.contracts.Group")
    check_rows(
        call, "the block", group.tensors, [len(next(iter(call.given["group"].tensors.values())))]
    )
    return group


class CustomCodec(CustomClass):
    """User-defined codec, which is checked in every round."""

    table: ClassVar = "codec"
    base_class: ClassVar = Codec
    returns: ClassVar = {
        "encode_group": check_parts(
            "(group, memory), the group an otafl.core.contracts.Group",
            check_group,
            check_blocks("memory", "the memory's", "as init made it"),
        )
    }
