"""Channel knowledge of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from contract.small import engine

from otafl.core.errors import UserError
from otafl.csi.base import Csi
from otafl.csi.estimates import Perfect

pytestmark = pytest.mark.exact


class PathFree(Csi):
    def estimate_paths(self, paths: Any, gain: Any, round: int) -> None:
        return None


class Derived(Perfect):
    """Its estimate would not be asked for."""


class Flat(PathFree):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h[:, :, 0]


class Nothing(PathFree):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return None


class Divided(PathFree):
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


def test_a_perfect_one_of_the_users_own_is_refused() -> None:
    with pytest.raises(UserError, match=r"'csi.test_custom:Derived' derives from Perfect"):
        engine({"csi": "csi.test_custom:Derived"})
