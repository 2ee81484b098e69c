"""A server optimiser of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from contract.small import engine

from otafl.core.errors import UserError
from otafl.core.settings import declare_stackable
from otafl.server.base import ServerOptimiser
from otafl.server.optimisers import Momentum

pytestmark = pytest.mark.exact


class Part(ServerOptimiser):
    """Goes a part of the way, of which each trial has its own."""

    part: float = declare_stackable(0.5, gt=0)

    def init(self, server: Any, hyper: Any) -> Any:
        return {}

    def step(self, old: Any, new: Any, memory: Any, hyper: Any) -> Any:
        part = hyper["part"][:, None]
        return new | {"model": torch.lerp(old["model"], new["model"], part)}, memory


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


def test_its_step_with_numbers_that_are_stacked() -> None:
    section = {"name": "server.test_custom:Part"}
    keys = {"server": section, "sweep": {"server.part": [0.25, 1.0]}, "trials": 1}
    one, plain = engine(keys), engine({"trials": 1})
    start = plain.server["model"].clone()
    for each in (one, plain):
        each.run_round(0)
    whole = plain.server["model"] - start
    torch.testing.assert_close(one.server["model"][:1] - start, 0.25 * whole)
    torch.testing.assert_close(one.server["model"][1:] - start, whole)


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
