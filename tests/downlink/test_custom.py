"""A downlink of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine

from otafl.core.errors import UserError
from otafl.downlink.downlinks import IdealDownlink

pytestmark = pytest.mark.exact


class Nothing(IdealDownlink):
    def send(self, broadcast: Any, cohort: Any, round: int) -> Any:
        return broadcast


class Rows(IdealDownlink):
    def send(self, broadcast: Any, cohort: Any, round: int) -> Any:
        return replace(super().send(broadcast, cohort, round), seconds=np.ones(cohort.num_rows))


class Negative(IdealDownlink):
    def send(self, broadcast: Any, cohort: Any, round: int) -> Any:
        return replace(super().send(broadcast, cohort, round), bits=-1.0)


class Heard(IdealDownlink):
    def send(self, broadcast: Any, cohort: Any, round: int) -> Any:
        return replace(
            super().send(broadcast, cohort, round), delivered_mask=torch.ones(2, dtype=bool)
        )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Nothing", "returned a Broadcast; expected an otafl.downlink.base.BroadcastDelivery"),
        ("Rows", "returned seconds of shape [12]; expected one number, or [3]"),
        ("Negative", "returned bits that are negative or not finite; expected finite num"),
        ("Heard", "returned delivered_mask of shape [2]; expected [12], one row per device"),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        engine({"downlink": f"downlink.test_custom:{name}"}).run_round(0)
    assert str(error.value).startswith(f"downlink.name: send of 'downlink.test_custom:{name}' ")
