"""Mistakes about uplinks without phase: each makes the laws fail that are named, and no other of
theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.mutations import Patch, failing, replaced

WRONG, GAINS = "wrong votes", "gains weigh votes"
BIAS, VARIANCE, GIVEN, WEIGHTS = (
    "unbiased",
    "variance",
    "variance given the channels",
    "gains weigh devices without calibration",
)


def test_placeholder() -> None:
    pass
