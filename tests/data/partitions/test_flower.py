"""Flower's partitioners, where the package is missing; `tests/interop` has what they deal out."""

from __future__ import annotations

import sys

import pytest

from otafl.core.errors import UserError
from otafl.data.partitions import SampleCounts
from otafl.data.partitions.flower import Flower

pytestmark = pytest.mark.exact


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    message = r"^data.partition: 'flower' needs a package \(.*\); run pip install 'otafl\[flower\]'"
    with pytest.raises(UserError, match=message):
        Flower(partitioner="IidPartitioner").check_counts(SampleCounts(100, 4, 10, False))
