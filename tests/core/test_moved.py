"""Modules under the names that they had before."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from otafl import moved


@pytest.mark.parametrize("old", [*moved.MODULES, *moved.PACKAGES])
def test_an_old_name_gives_the_module_with_a_warning(old: str) -> None:
    new = moved.get_new_name(f"otafl.{old}")
    assert new is not None
    true = importlib.import_module(new)
    spec = true.__spec__
    sys.modules.pop(f"otafl.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"otafl.{old} has moved to {new}$"):
        assert importlib.import_module(f"otafl.{old}") is true
    assert true.__spec__ is spec
    assert true.__name__ == new


@pytest.mark.slow
def test_a_part_of_a_user_imports_what_it_did() -> None:
    """As sentences that take names out of modules and modules out of packages."""
    text = (
        "from otafl.transport.base import Transport\n"
        "from otafl.transport import few_antennas, superpose\n"
        "from otafl.uplink.differentiable import aggregation_mse\n"
        "import otafl.engine.evaluation\n"
        "print(Transport.__module__, few_antennas.__name__, aggregation_mse.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "otafl.uplink.base",
        "otafl.uplink.noncoherent.energy_kernel",
        "otafl.own_loop.differentiable",
    ]


@pytest.mark.parametrize(
    "name", ["otafl.nothing", "otafl.uplink.coherent", "otafl.uplink.base", "os.transport", "otafl"]
)
def test_what_has_not_moved_is_not_found(name: str) -> None:
    assert moved.get_new_name(name) is None
