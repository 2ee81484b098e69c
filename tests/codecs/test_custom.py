"""A codec of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from contract.small import engine

from otafl.codecs.base import Codec
from otafl.codecs.subsets import TopK
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


class Fewer(Codec):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return replace(group, tensors={n: b[1:] for n, b in group.tensors.items()}), memory


class Alone(Codec):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return group


class Forgetful(TopK):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return super().encode_group(group, index, memory, context)[0], {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Alone",
            "returned a Group; expected (group, memory), the group an otafl.core.contracts.Group (",
        ),
        (
            "Fewer",
            "returned the block 'model' of shape [11, 310]; expected [12, ...], one row per device",
        ),
        ("Forgetful", "returned the memory's blocks []; expected ['rest/0'], as init made it"),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        engine({"codec": f"{__name__}:{name}"}).run_round(0)
    assert str(error.value).startswith(f"codec.name: encode_group of '{__name__}:{name}' ")
