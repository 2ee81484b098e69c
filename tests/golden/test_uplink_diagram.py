"""The diagram of the uplink in docs/design.md names what the code has, in the order of the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from otafl.core import contracts, registry
from otafl.uplink.base import Transport
from otafl.uplink.coherent.over_the_air import OverTheAir
from otafl.uplink.delivery import Delivery
from otafl.uplink.transmit import transmit

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "design.md").read_text().partition("## The uplink")[2]
STEPS = re.findall(r"^  \| (\w+)\.(\w+) +(.+)$", TEXT, re.M)
TYPES = re.findall(r"^  \| .+? {2,}(\w+): ", TEXT, re.M)
CALLED_BY = {"lay_out_reals": "lay_out", "normalise_reals": "normalise", "_superpose": "superpose"}
"""Functions of `transmit` -> the step that they call."""

HOLDS = re.compile(r"\b(Group|Signal|OnAir|OnPairs)\b")


@pytest.mark.parametrize(("module", "step", "text"), STEPS)
def test_a_step_of_the_diagram_is_a_function(module: str, step: str, text: str) -> None:
    found = getattr(importlib.import_module(f"otafl.uplink.{module}"), step)
    assert inspect.isfunction(found)
    assert found.__module__ == f"otafl.uplink.{module}"


def find_calls(function: Any) -> list[str]:
    """Return the names that a function calls, in order; of `transmit` what it calls, too."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))
    found = []
    for call in calls:
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        found += [*find_calls(transmit), name] if name == "transmit" else [name]
    return found


def test_the_steps_are_those_of_the_code() -> None:
    called = [*find_calls(Delivery.__init__), *find_calls(OverTheAir.transmit)]
    drawn = [step for _, step, _ in STEPS]
    names = [CALLED_BY.get(name, name) for name in called]
    assert [name for name in names if name in drawn] == drawn


def test_an_update_has_four_types() -> None:
    """The table's, and no other class of the uplink holds one of them for its schemes of sums."""
    table = re.findall(r"^\| what .+ \| (`\w+`(?:, `\w+`)*) \| `.+` \|$", TEXT, re.M)
    assert table == ["`Group`", "`Signal`", "`OnAir`, `OnPairs`", "`Received`"]
    folder, holders = ROOT / "otafl" / "uplink", set()
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
                if any(HOLDS.search(ast.unparse(line.annotation)) for line in fields):
                    holders.add(node.name)
    # a `SentPart` is a field of what is transmitted
    assert holders == {"Signal", "OnAir", "OnPairs", "SentPart"}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_the_diagram_is_one_of_the_code(name: str) -> None:
    modules = [importlib.import_module(f"otafl.uplink.{module}") for module, _, _ in STEPS]
    modules.append(importlib.import_module("otafl.uplink.delivery"))
    assert any(inspect.isclass(getattr(one, name, None)) for one in [*modules, contracts])


@pytest.mark.parametrize("name", registry.list_names("transport"))
def test_a_scheme_inherits_from_no_other(name: str) -> None:
    assert registry.load_component("transport", name).__bases__ == (Transport,)


def test_the_ideal_link_imports_three_modules_of_the_uplink() -> None:
    seen, left = set[str](), ["otafl.uplink.ideal"]
    while left:
        path = ROOT / (left.pop().replace(".", "/") + ".py")
        new = set(re.findall(r"^from (otafl\.uplink\.\w+) import", path.read_text(), re.M)) - seen
        seen |= new
        left += new
    assert seen == {f"otafl.uplink.{name}" for name in ("base", "delivery", "signal")}
