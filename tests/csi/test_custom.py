"""Channel knowledge of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from contract.small import engine

from otafl.core.errors import UserError
from otafl.csi.estimates import Perfect

pytestmark = pytest.mark.exact


class Flat(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h[:, :, 0]


class Nothing(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return None


class Divided(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h / 0.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Flat", "returned [3, 4, 1, 1]; expected [3, 4, 1, 1, 1], as h"),
        ("Nothing", "returned NoneType; expected [3, 4, 1, 1, 1], as h"),
        ("Divided", "returned numbers that are not finite; expected finite numbers"),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        engine({"csi": f"csi.test_custom:{name}"}).run_round(0)
    assert str(error.value).startswith(f"csi.name: estimate of 'csi.test_custom:{name}' returned ")
