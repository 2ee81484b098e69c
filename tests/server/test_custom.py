"""A server optimiser of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from contract.small import engine

from otafl.core.errors import UserError
from otafl.server.optimisers import Momentum

pytestmark = pytest.mark.exact


class Bare(Momentum):
    def step(self, old: Any, new: Any, memory: Any, hyper: Any) -> Any:
        return new


class Grown(Momentum):
    def step(self, old: Any, new: Any, memory: Any, hyper: Any) -> Any:
        return {"model": new["model"][:1]}, memory


class Emptied(Momentum):
    def step(self, old: Any, new: Any, memory: Any, hyper: Any) -> Any:
        return new, {}


class Listed(Momentum):
    def init(self, server: Any, hyper: Any) -> Any:
        return [server["model"]]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Bare", "step of 'server.test_custom:Bare' returned a dict; expected (server, memory)"),
        (
            "Grown",
            "returned the server's block 'model' of shape [1, 310]; expected [3, 310], as before",
        ),
        ("Emptied", "returned the memory's blocks []; expected ['m'], as before"),
        (
            "Listed",
            "init of 'server.test_custom:Listed' returned a list; expected a dict of tensors",
        ),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        engine({"server": f"server.test_custom:{name}"}).run_round(0)
    assert re.match(r"server\.name: .*; expected .* \(.*test_custom\.py:\d+\)$", str(error.value))
