"""What a release needs beside the package: extras, and one version throughout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import otafl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
APART = {"litert"}
"""Extras that need other versions than those of the constraints."""
FOR_DEVELOPERS = {"dev", "docs", "all", "peft"}
"""Of the last one is an oracle of tests."""


def test_all_is_every_extra_of_users() -> None:
    (one,) = EXTRAS["all"]
    names = set(re.findall(r"[\w-]+", one.partition("[")[2]))
    assert names == EXTRAS.keys() - FOR_DEVELOPERS - APART


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    (first, *_) = re.findall(r"^## (\S+)", changelog, re.M)
    assert PROJECT["version"] == citation["version"] == first == otafl.__version__
