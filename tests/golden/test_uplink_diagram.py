"""The diagram of the uplink in docs/design.md names what the code has, in the order of the code.

Mutations that make a test here fail: a step renamed, left out or in another place of the diagram, a
type that no step returns, a scheme that inherits from another, an import of the ideal link.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from otafl.core import contracts, registry
from otafl.uplink.base import Transport
from otafl.uplink.coherent.over_the_air import OverTheAir

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "design.md").read_text().partition("## The uplink")[2]
STEPS = re.findall(r"^  \| (\w+)\.(\w+) +(.+)$", TEXT, re.M)
TYPES = re.findall(r"^  \| .+? {2,}(\w+): ", TEXT, re.M)
CALLED_BY = {"lay_out_reals": "lay_out", "normalise_reals": "normalise", "_superpose": "superpose"}
"""Functions of `carry` -> the step that they call."""


@pytest.mark.parametrize(("module", "step", "text"), STEPS)
def test_a_step_of_the_diagram_is_a_function(module: str, step: str, text: str) -> None:
    found = getattr(importlib.import_module(f"otafl.uplink.{module}"), step)
    assert inspect.isfunction(found)
    assert found.__module__ == f"otafl.uplink.{module}"


def test_the_steps_are_those_of_the_code() -> None:
    """All that `carry` calls of the steps, in the diagram; its last two stand side by side."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(OverTheAir.carry)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))
    names = [getattr(call.func, "id", getattr(call.func, "attr", "")) for call in calls]
    names = [CALLED_BY.get(name, name) for name in names]
    drawn = [step for _, step, _ in STEPS]
    called = [name for name in names if name in drawn and name != "account"]
    called.remove("limit")  # of privacy, which bounds the budgets
    assert [*called, "account"] == drawn


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_the_diagram_is_one_of_the_code(name: str) -> None:
    modules = [importlib.import_module(f"otafl.uplink.{module}") for module, _, _ in STEPS]
    assert any(inspect.isclass(getattr(one, name, None)) for one in [*modules, contracts])


@pytest.mark.parametrize("name", registry.names("transport"))
def test_a_scheme_inherits_from_no_other(name: str) -> None:
    assert registry.component("transport", name).__bases__ == (Transport,)


def test_the_ideal_link_imports_three_modules_of_the_uplink() -> None:
    seen, left = set[str](), ["otafl.uplink.ideal"]
    while left:
        path = ROOT / (left.pop().replace(".", "/") + ".py")
        new = set(re.findall(r"^from (otafl\.uplink\.\w+) import", path.read_text(), re.M)) - seen
        seen |= new
        left += new
    assert seen == {f"otafl.uplink.{name}" for name in ("base", "delivery", "signal")}
