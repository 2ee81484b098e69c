"""What is said of a scenario that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otafl.core import registry
from otafl.scenario import ScenarioError, load_scenario

POLICIES = ", ".join(registry.list_names("power"))
TOP = (
    "(known keys: name, data, model, loss, algorithm, channel, csi, receiver, power, impairments, "
    "faults, codec, transport, signalling, privacy, robust, server, downlink, topology, devices, "
    "training, trials, seed, sweep, engine, output, track)"
)


def list_faults(tree: dict[str, Any], *overrides: str) -> list[str]:
    """What is said of a scenario given as a mapping."""
    with pytest.raises(ScenarioError) as error:
        load_scenario({"name": "x", **tree}, overrides)
    assert str(error.value) == "\n".join(error.value.lines)
    return list(error.value.lines)


def list_file_faults(folder: Path, text: str, *overrides: str) -> list[str]:
    """The same of a file, its folder cut off."""
    path = folder / "quickstart.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(str(path), overrides)
    return [line.replace(f"{folder}/", "") for line in error.value.lines]
