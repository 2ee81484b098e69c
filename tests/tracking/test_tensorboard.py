"""TensorBoard's files, where the package is missing; `tests/interop` has those that it reads."""

from __future__ import annotations

import importlib.util

import pytest
from contract.small import scenario

from otafl import sweeping
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


def test_without_tensorboard_it_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = r"^track: tensorboard is not installed; run pip install 'otafl\[tracking\]'"
    with pytest.raises(UserError, match=message):
        sweeping.run(scenario({"track": "tensorboard"}))
