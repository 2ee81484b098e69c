"""What a release needs beside the package: extras, constraints, citation, changelog and paper."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import otafl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ORACLES = {"peft"}
"""Extras with which tests compare otafl; no installation needs them."""
FOR_DEVELOPERS = {"dev", "docs", "all"} | ORACLES


def read_pins(name: str) -> dict[str, str]:
    """Return the versions of a constraints file, and check that no package stands there twice."""
    lines = [
        line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")
    ]
    pins = dict(line.split("==") for line in lines)
    assert len(pins) == len(lines)
    return pins


def normalise(requirement: str) -> str:
    return re.split(r"[\[<>=~;! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_all_is_every_extra_of_users() -> None:
    (one,) = EXTRAS["all"]
    names = set(re.findall(r"[\w-]+", one.partition("[")[2]))
    assert names == EXTRAS.keys() - FOR_DEVELOPERS
    page = (ROOT / "docs" / "install.md").read_text()
    for name in EXTRAS.keys() - ORACLES:
        assert re.search(rf"^- (`\w+` and )?`{name}`", page, re.M), name


def test_direct_dependencies_are_bounded_and_pinned() -> None:
    core, flower = read_pins("constraints.txt"), read_pins("scripts/constraints_flower.txt")
    pins = {name.lower().replace("_", "-") for name in core.keys() | flower.keys()}
    unpinned = {"furo", "pillow", "jinja2"} | ORACLES
    for requirement in [
        *PROJECT["dependencies"],
        *(one for some in EXTRAS.values() for one in some),
    ]:
        name = normalise(requirement)
        assert name == "otafl" or ">=" in requirement, requirement
        assert name in pins | unpinned | {"otafl"}, requirement


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    (first, *_) = re.findall(r"^## (\S+)", changelog, re.M)
    assert PROJECT["version"] == citation["version"] == first == otafl.__version__
