"""What a result says of the machine."""

from __future__ import annotations

import pytest
import torch

from otafl.results.environment import get_device_name


def test_a_gpu_has_the_name_that_its_driver_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert get_device_name("cuda") == "a GPU"
    assert get_device_name("cpu") != "a GPU"
