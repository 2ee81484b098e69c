"""A codec of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from contract.small import engine

from otafl.codecs.base import Codec
from otafl.codecs.topk import TopK
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


class Halved(Codec):
    """Sends half of each number, which takes 5 bits."""

    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return replace(group, tensors={n: 0.5 * b for n, b in group.tensors.items()}), memory

    def count_bits(self, group: Any) -> float:
        return 5.0 * group.num_coordinates


class Fewer(Codec):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return replace(group, tensors={n: b[1:] for n, b in group.tensors.items()}), memory


class Alone(Codec):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return group


class Forgetful(TopK):
    def encode_group(self, group: Any, index: int, memory: Any, context: Any) -> Any:
        return super().encode_group(group, index, memory, context)[0], {}


@pytest.mark.slow
def test_what_it_sends_and_how_many_bits_that_is() -> None:
    keys = {"transport": "digital", "devices.count": 4, "trials": 1}
    plain, half = engine(keys), engine({**keys, "codec": f"{__name__}:Halved"})
    start = plain.server["model"].clone()
    for one in (plain, half):
        one.run_round(0)
    torch.testing.assert_close(half.server["model"] - start, 0.5 * (plain.server["model"] - start))
    bits = [one.means.take()["uplink_bits"] for one in (plain, half)]
    assert bits[1] / bits[0] == pytest.approx(5 / 32)


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
