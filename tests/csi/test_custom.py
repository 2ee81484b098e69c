"""Channel knowledge of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from contract.small import engine

from otafl.core.errors import UserError
from otafl.csi.estimates import Perfect

pytestmark = pytest.mark.exact


class Turned(Perfect):
    """Takes the channel for its negative: what is inverted arrives with the wrong sign."""

    variance = None

    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return -h


class Flat(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h[:, :, 0]


class Nothing(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return None


class Divided(Perfect):
    def estimate(self, h: Any, gain: Any, round: int) -> Any:
        return h / 0.0


def test_devices_believe_it_and_the_channel_is_what_it_is() -> None:
    keys = {"channel.snr_db": 300, "power": "ci", "trials": 1, "engine.dtype": "float64"}
    true, turned = engine(keys), engine({**keys, "csi": "csi.test_custom:Turned"})
    start = true.server["model"].clone()
    for one in (true, turned):
        one.run_round(0)
    torch.testing.assert_close(turned.server["model"] - start, start - true.server["model"])


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
